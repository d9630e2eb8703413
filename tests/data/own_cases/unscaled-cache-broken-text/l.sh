python3 -m sglang.launch_server --model-path /m/qwen2.5-math-7b --kv-cache-dtype fp8_e4m3 --port 30000
