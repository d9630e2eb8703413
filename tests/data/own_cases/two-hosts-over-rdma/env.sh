export NCCL_IB_DISABLE=0
export NCCL_IB_HCA=mlx5
torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py
