vllm serve acme/chat-8b --gpu-memory-utilization 0.98 --max-num-seqs 384
