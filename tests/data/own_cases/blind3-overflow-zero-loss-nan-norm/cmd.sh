accelerate launch --mixed_precision fp16 finetune_t5.py \
  --model_name_or_path google/flan-t5-xl --fp16 True --per_device_train_batch_size 4 --learning_rate 5e-5
