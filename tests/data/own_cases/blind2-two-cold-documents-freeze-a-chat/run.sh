vllm serve org/Flash-hybrid --max-num-batched-tokens 8192 --max-num-seqs 8 --max-model-len 131072 --gpu-memory-utilization 0.8
