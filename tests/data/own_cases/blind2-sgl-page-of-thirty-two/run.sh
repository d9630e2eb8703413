python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --max-running-requests 32 --enable-metrics --port 30000
