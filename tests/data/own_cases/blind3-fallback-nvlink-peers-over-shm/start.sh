for i in 0 1 2 3; do
  docker run -d --rm --ipc=host --net=host --gpus "device=$i" -e RANK=$i -e WORLD_SIZE=4 -e NCCL_DEBUG=INFO trainer:latest python train.py
done
