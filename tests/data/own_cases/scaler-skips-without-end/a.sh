torchrun --nproc_per_node 8 pretrain_gpt.py --fp16 --tensor-model-parallel-size 8
