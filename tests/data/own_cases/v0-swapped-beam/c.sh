python -m vllm.entrypoints.openai.api_server --model acme/chat-7b --swap-space 16
