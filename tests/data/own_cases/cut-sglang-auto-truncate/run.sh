python -m sglang.launch_server --model-path Qwen/Qwen2.5-14B-Instruct --context-length 16384 --allow-auto-truncate --port 30000
