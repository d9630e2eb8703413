llama-server -m llama-3-8b-instruct-q5.gguf -c 32768 -ngl 99
