docker run -d --net=host -e NVIDIA_VISIBLE_DEVICES=0 -e RANK=0 --name w0 train:1
docker run -d --net=host -e NVIDIA_VISIBLE_DEVICES=1 -e RANK=1 --name w1 train:1
