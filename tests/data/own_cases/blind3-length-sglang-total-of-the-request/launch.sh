python -m sglang.launch_server --model-path meta-llama/Llama-2-13b-chat-hf --port 30000 --tp 1
