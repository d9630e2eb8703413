export NCCL_P2P_DISABLE=1
NCCL_DEBUG=INFO python3 -m sglang.launch_server --model-path /models/qwen2.5-72b --tp 4 --port 30000
