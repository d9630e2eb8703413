"""What a device's kernels can compute with, as far as a launch is sized by it. Pure.

Compute capabilities: vLLM's docs/features/quantization/README.md and platforms/cuda.py. AMD's devices have none here;
those of the table have bfloat16, and from MI300 on FP8.
"""

from __future__ import annotations

from dataclasses import replace

from infradoc_rules.sizing.dtypes import DTYPES
from infradoc_rules.sizing.gpus import Gpu
from infradoc_rules.sizing.model import Model
from infradoc_rules.sizing.setting import Setting, dtype_of

_BFLOAT16 = frozenset({"bfloat16", "bf16"})
_FIRST_BFLOAT16 = 8.0
_FIRST_FP8 = 8.9
_FIRST_AWQ = 7.5
_FIRST_GPTQ = 6.0
# What overflows in float16 and is refused with it: vllm/config/model.py, _FLOAT16_NOT_SUPPORTED_MODELS.
_NO_FLOAT16 = frozenset({"gemma2", "gemma3", "plamo2", "glm4"})


def has_bfloat16(gpu: Gpu) -> bool:
    """Whether the device computes in bfloat16; engines refuse it on others."""
    return gpu.capability is None or gpu.capability >= _FIRST_BFLOAT16


def has_fp8(gpu: Gpu) -> bool:
    """Whether the device computes in FP8, so that an FP8 checkpoint runs as such."""
    return gpu.name.startswith("MI3") if gpu.capability is None else gpu.capability >= _FIRST_FP8


def has_fp8_cache(gpu: Gpu) -> bool:
    """Whether an engine keeps the KV cache in eight bits there."""
    return has_bfloat16(gpu)


def four_bits(gpu: Gpu) -> str | None:
    """The best-known quantization in four bits with kernels for the device; None where there are none."""
    if gpu.capability is None or gpu.capability >= _FIRST_AWQ:
        return "awq"
    return "gptq" if gpu.capability >= _FIRST_GPTQ else None


def startable(model: Model, setting: Setting) -> Setting:
    """The launch with the data type that it takes on a device without bfloat16, where that is the checkpoint's."""
    if has_bfloat16(setting.gpu) or setting.dtype is not None or dtype_of(model, setting) not in _BFLOAT16:
        return setting
    return replace(setting, dtype="float32" if model.kind in _NO_FLOAT16 else "float16")


def refused(model: Model, setting: Setting) -> str | None:
    """The data type to give instead, when the launch asks for bfloat16 where there is none; else None."""
    if setting.dtype not in _BFLOAT16 or has_bfloat16(setting.gpu):
        return None
    return startable(model, replace(setting, dtype=None)).dtype or "float16"


def stored_as(model: Model, setting: Setting, quantization: str) -> Setting | None:
    """The launch of a checkpoint with that quantization, whose kernels compute in 16 bits.

    None where the device has none of 16 bits that the model takes.
    """
    if DTYPES[dtype_of(model, setting)] == 2:
        return replace(setting, quantization=quantization)
    dtype = "bfloat16" if model.kind in _NO_FLOAT16 else "float16"
    possible = dtype == "float16" or has_bfloat16(setting.gpu)
    return replace(setting, quantization=quantization, dtype=dtype) if possible else None
