python3 -m sglang.launch_server --model-path /m/deepseek-v3 --tp 16 --nnodes 2 --node-rank 0 --dist-init-addr 10.0.0.1:5000
