python3 -m vllm.entrypoints.openai.api_server --model mistralai/Mistral-7B-Instruct-v0.3 --gpu-memory-utilization 0.8 --max-model-len 16384
