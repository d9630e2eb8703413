vllm serve m --max-num-seqs 200
