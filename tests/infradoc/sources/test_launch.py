"""Launch commands to facts, and secrets kept out."""

from __future__ import annotations

import pytest

from infradoc.sources.launch import launch_facts, split_command, system_of
from infradoc.sources.launch_source import LaunchSource


def facts(command: str) -> dict[str, object]:
    return {fact.name: fact.value for fact in launch_facts(command)}


def test_vllm_command() -> None:
    found = facts(
        "VLLM_CPU_KVCACHE_SPACE=2 vllm serve /models/m --max-model-len 2048 --max-num-seqs=16 --dtype float32 "
        "--enforce-eager --no-enable-prefix-caching --num-gpu-blocks-override 24 --swap-space 4"
    )
    assert found["target.system"] == "vllm"
    assert found["max_model_len"] == 2048 and found["max_num_seqs"] == 16
    assert found["prefix_caching"] is False and found["enforce_eager"] is True
    assert found["kv.pool_blocks_override"] == 24 and "kv_pool_tokens" not in found
    assert found["swap_space"] == 4 * 2**30


def test_other_engines() -> None:
    assert facts("llama-server -m m.gguf -c 4096 -np 4")["max_num_seqs"] == 4
    assert facts("python -m sglang.launch_server --mem-fraction-static 0.8")["gpu_memory_utilization"] == 0.8
    assert facts("infradoc serve --max-num-seqs 8 --port 0")["max_num_seqs"] == 8


@pytest.mark.parametrize(
    ("command", "system"),
    [
        ("vllm serve m", "vllm"),
        ("text-generation-launcher --model-id m", "tgi"),
        ("python -m infradoc_engine serve", "infradoc"),
        ("ls", None),
    ],
)
def test_system(command: str, system: str | None) -> None:
    assert system_of(command) == system


def test_negative_numbers_continuations_and_open_quotes() -> None:
    assert facts("vllm serve m \\\n  --max-model-len -1 --max-num-seqs 4")["max_num_seqs"] == 4
    assert split_command("vllm serve 'open --x 1")[-1] == "1"


def test_a_server_that_starts_late_is_looked_for_again() -> None:
    commands: list[list[str]] = [[], ["vllm", "serve", "m", "--max-num-seqs", "4"]]
    source = LaunchSource(process=lambda: commands.pop(0))
    assert source.read(1.0).facts == [] and source.interval < 60
    assert {fact.name: fact.value for fact in source.read(6.0).facts}["max_num_seqs"] == 4
    assert source.interval == float("inf")


def test_docker_run_with_limits_and_variables() -> None:
    found = facts(
        "docker run -d --gpus '\"device=1\"' --shm-size=10.24gb -m 64g --cpus 8 -e NCCL_P2P_DISABLE=1 "
        "-e HF_TOKEN=hidden vllm/vllm-openai:v0.9.1 --model org/m -tp 2 --max-model-len 32k"
    )
    assert found["shm_size"] == round(10.24 * 2**30) and found["cgroup.memory_limit_bytes"] == 64 << 30
    assert found["cpu_limit"] == 8 and found["nccl_p2p"] is False and found["env.NCCL_P2P_DISABLE"] == 1
    assert (
        found["tensor_parallel_size"] == 2 and found["max_model_len"] == 32_000 and found["target.version"] == "0.9.1"
    )
    assert "hidden" not in map(str, found.values())


def test_scripts_and_models_without_a_flag() -> None:
    found = facts("export MODEL=org/m\nvllm serve $MODEL --enable-prefix-caching --max-num-seqs 4   # 4x A10")
    assert found["model.name"] == "org/m" and found["prefix_caching"] is True
    assert found["gpu.name"] == "A10" and found["gpu.count"] == 4
