vllm serve /m/qwen2.5-7b-instruct --kv-cache-dtype fp8 --max-model-len 32768
