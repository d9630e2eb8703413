torchrun --nproc_per_node 4 sft.py \
  --model_name_or_path Qwen/Qwen2.5-7B --bf16 True \
  --per_device_train_batch_size 8 --gradient_accumulation_steps 2 \
  --max_seq_length 4096 --optim adamw_torch --output_dir out
