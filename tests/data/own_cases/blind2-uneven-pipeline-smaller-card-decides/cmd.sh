VLLM_PP_LAYER_PARTITION=16,32 CUDA_VISIBLE_DEVICES=0,1 vllm serve ./Qwen3-Coder-30B-A3B-Instruct-FP8 --gpu-memory-utilization 0.9 --pipeline-parallel-size 2 --enable-chunked-prefill
