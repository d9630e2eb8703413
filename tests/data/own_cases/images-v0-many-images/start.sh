python -m vllm.entrypoints.openai.api_server --model Qwen/Qwen2.5-VL-72B-Instruct-GPTQ-Int4 -tp 2 --limit-mm-per-prompt image=10,video=1
