torchrun --nproc_per_node 4 src/train_bash.py --stage sft --do_train --model_name_or_path Qwen/Qwen-7B --dataset big_zh --output_dir out --bf16
