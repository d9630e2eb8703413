torchrun --nnodes 2 --nproc_per_node 4 --rdzv_backend c10d --rdzv_endpoint 10.20.0.4:29500 pretrain.py
