vllm serve Qwen/Qwen3-32B --max-model-len 8192
