llama-server -m mistral-24b-q4_k_m.gguf -c 131072 -np 2 -ngl 99
