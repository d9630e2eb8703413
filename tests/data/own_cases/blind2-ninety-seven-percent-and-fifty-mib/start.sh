docker run --gpus all --ipc=host -p 8000:8000 vllm/vllm-openai:v0.19.0 --model cyankiwi/Qwen3.6-27B-AWQ-4bit --gpu-memory-utilization 0.97 --max-model-len 65536 --max-num-seqs 2
