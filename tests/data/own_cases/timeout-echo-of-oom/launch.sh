accelerate launch --num_processes 4 --use_fsdp train.py --bf16 true --per_device_train_batch_size 8
