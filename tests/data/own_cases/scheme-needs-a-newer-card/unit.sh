vllm serve /m/qwen3-14b-awq-ct --max-model-len 8192 --dtype half
