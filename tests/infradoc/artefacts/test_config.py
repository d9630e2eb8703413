"""Kubernetes, compose and collect_env as facts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from infradoc.artefacts.gather import gather

POD = """\
apiVersion: v1
kind: Pod
spec:
  hostIPC: true
  volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 2Gi}}]
  containers:
    - image: vllm/vllm-openai:v0.9.2
      volumeMounts: [{name: shm, mountPath: /dev/shm}]
      args: ["--model", "org/m-7b", "--max-model-len", "8192", "--api-key", "hidden-word"]
      env:
        - {name: OMP_NUM_THREADS, value: "4"}
        - {name: HF_TOKEN, value: hidden-word}
      resources: {limits: {cpu: 2500m, memory: 16Gi}}
"""
COMPOSE = """\
services:
  llm:
    image: lmsysorg/sglang:v0.4.9
    command: python3 -m sglang.launch_server --model-path org/m --disable-radix-cache
    shm_size: 4g
    ipc: host
    environment: [NCCL_P2P_DISABLE=1]
"""
TRAINER = "model_name_or_path: org/m\nstage: sft\nper_device_train_batch_size: 1\n"


def test_pod(write: Callable[..., Path]) -> None:
    found = gather(write(pod__yaml=POD))
    facts = {name: fact.value for name, fact in found.facts.items()}
    assert found.system == "vllm" and facts["target.version"] == "0.9.2" and facts["max_model_len"] == 8192
    assert facts["cpu_limit"] == 2.5 and facts["cgroup.memory_limit_bytes"] == 16 << 30
    assert facts["shm_size"] == 2 << 30 and facts["ipc_host"] is True
    assert facts["omp_num_threads"] == 4 and "hidden-word" not in map(str, facts.values())


def test_compose(write: Callable[..., Path]) -> None:
    found = gather(write(compose__yaml=COMPOSE))
    facts = {name: fact.value for name, fact in found.facts.items()}
    assert found.system == "sglang" and facts["shm_size"] == 4 << 30 and facts["ipc_host"] is True
    assert facts["prefix_caching"] is False and facts["nccl_p2p"] is False


def test_a_trainer_is_left_alone(write: Callable[..., Path]) -> None:
    assert "config" not in {kind for _, kind in gather(write(conf__yaml=TRAINER)).kinds}


def test_collect_env(write: Callable[..., Path]) -> None:
    text = "OS: Linux\nGPU models and configuration: GPU 0: NVIDIA L4\nCPU:\nCPU(s):    64\nvLLM Version: 0.8.5\n"
    facts = gather(write(env__txt=text)).facts
    assert facts["host.cpus"].value == 64 and facts["gpu.name"].value == "NVIDIA L4"
