# before the maintenance window, please check whether this will come up
docker run --rm --gpus all --ipc=host -p 8000:8000 vllm/vllm-openai:v0.10.2 \
  --model meta-llama/Llama-3.1-70B-Instruct --max-model-len 16384 --gpu-memory-utilization 0.95
