vllm serve mistralai/Mistral-7B-Instruct-v0.3 --max-model-len 8192 --port 8000
