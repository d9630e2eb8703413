vllm serve Qwen/Qwen2.5-1.5B-Instruct --gpu-memory-utilization 0.35 --max-model-len 4096 --port 8001
