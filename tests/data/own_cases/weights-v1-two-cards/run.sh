vllm serve Qwen/Qwen2.5-32B-Instruct --tensor-parallel-size 2 --max-model-len 8192 --gpu-memory-utilization 0.97
