deepspeed --num_nodes 2 --num_gpus 2 train.py
