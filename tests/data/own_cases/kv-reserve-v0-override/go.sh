vllm serve meta-llama/Llama-3.1-8B-Instruct --num-gpu-blocks-override 9000
