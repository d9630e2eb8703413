docker run --rm --gpus all -v /data:/data trainer:24.05 torchrun --nproc_per_node 8 train.py
