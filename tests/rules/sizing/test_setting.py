"""Defaults of an engine's versions, and how many GPUs can share a model."""

from __future__ import annotations

import pytest

from infradoc_rules.sizing.behaviour import behaviour
from infradoc_rules.sizing.gpus import gpu_named, known_gpus
from infradoc_rules.sizing.known import known_model
from infradoc_rules.sizing.setting import Setting, shareable
from infradoc_rules.units import GIB


@pytest.mark.parametrize(
    ("gpu", "version", "length", "expected"),
    [
        ("H100", (0, 11), 131_072, (1024, 8192)),
        ("A100 80GB", (0, 11), 131_072, (256, 2048)),  # its throughput falls with large steps
        ("A100 80GB", (0, 8, 5), 131_072, (1024, 8192)),
        ("L4", (0, 8, 3), 8192, (1024, 2048)),  # the second engine's first defaults, taken back in 0.8.4
        ("B200", (0, 30), 131_072, (1024, 8192)),
        ("B200", None, 131_072, (1024, 16_384)),
        ("L4", None, 8192, (256, 2048)),
        ("H100", (0, 6, 4), 20_000, (256, 20_000)),  # the V0 engine computed a prompt in one step
        ("H100", (0, 6, 4), 131_072, (256, 2048)),
    ],
)
def test_a_step_by_device_and_version(gpu, version, length, expected):
    setting = Setting(gpu_named(gpu), max_model_len=length, version=version)
    assert setting.batch(known_model("Llama-3.1-8B")) == expected


def test_the_fraction_by_version():
    assert [behaviour(version).fraction for version in ((0, 11), (0, 20, 2), (0, 21), None)] == [0.9, 0.9, 0.92, 0.92]
    assert Setting(gpu_named("L4"), fraction=0.5).share == 0.5


@pytest.mark.parametrize(
    ("name", "gpus", "expected"),
    [
        ("Llama-3.1-70B", 8, True),
        ("Qwen3-14B", 5, False),  # 40 heads, but 151,936 words are no multiple of five
        ("Qwen2.5-7B", 4, True),
        ("Qwen2.5-7B", 8, False),  # 28 heads
        ("Qwen2.5-7B", 7, False),  # four key-value heads
        ("Llama-3-8B", 16, True),  # more GPUs than key-value heads: each is on two
        ("DeepSeek-V3", 16, True),
    ],
)
def test_who_can_share_a_model(name, gpus, expected):
    assert shareable(known_model(name), gpus) is expected


# What CUDA gives programs, as start-up lines of engines and torch print it (GiB).
@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("NVIDIA H100 80GB HBM3", 79.19),
        ("NVIDIA A100-SXM4-80GB", 79.25),
        ("NVIDIA A100-SXM4-40GB", 39.5),
        ("NVIDIA H200", 139.8),
        ("NVIDIA H20", 95.6),
        ("NVIDIA L40S", 44.42),
        ("NVIDIA L4", 22.05),
        ("NVIDIA A10G", 22.06),
        ("Tesla T4", 14.6),
        ("Tesla V100-SXM2-32GB", 31.74),
        ("NVIDIA GeForce RTX 4090", 23.55),
        ("NVIDIA GeForce RTX 3090", 23.58),
        ("NVIDIA GeForce RTX 5090", 31.37),
        ("NVIDIA RTX A6000", 47.5),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 95.0),
    ],
)
def test_memory_is_what_programs_get(text, seen):
    assert gpu_named(text).memory_bytes / GIB == pytest.approx(seen, rel=0.01)


def test_the_more_exact_name_wins():
    assert gpu_named("NVIDIA GH200 480GB").name == "GH200"
    assert gpu_named("GeForce RTX 2080 Ti 22GB").name == "RTX 2080 Ti 22GB"
    assert gpu_named("RTX 4090 48GB").name == "RTX 4090 48GB"
    for gpu in known_gpus():
        assert gpu_named(gpu.name) == gpu
