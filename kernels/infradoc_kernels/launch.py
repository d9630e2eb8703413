"""What all Triton wrappers share: the device they launch on, block sizes and warps, and checks with the values in the
error."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
import triton

FLOATS = (torch.bfloat16, torch.float16, torch.float32)
TRITON_NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.float64: "fp64"}


def on_device(x: torch.Tensor) -> AbstractContextManager[object]:
    """The device of x as the current one: Triton launches on the current device, whatever its arguments say.

    Raises ValueError for a tensor that is on no GPU, unless Triton interprets (TRITON_INTERPRET=1).
    """
    if x.is_cuda:
        return torch.cuda.device(x.device)
    if triton.knobs.runtime.interpret:
        return nullcontext()
    raise ValueError(
        f"a Triton kernel got a tensor on {x.device}: it runs on a GPU; infradoc_kernels.ops picks by device"
    )


def next_power_of_2(n: int) -> int:
    """Smallest power of two that is at least n, for n >= 1: tile sizes must be powers of two."""
    return 1 << (n - 1).bit_length()


def warps_for(values: int, per_thread: int = 8, most: int = 16) -> int:
    """Warps for a tile of so many values: a power of two from 1 to `most`.

    8 two-byte values a thread are one 16-byte load, the widest there is.
    """
    return max(1, min(most, next_power_of_2(values) // (32 * per_thread)))


def check_shape(name: str, x: torch.Tensor, shape: Sequence[int | None]) -> None:
    """Raises ValueError unless x has this shape; None stands for any size."""
    if x.ndim != len(shape) or any(want is not None and want != got for want, got in zip(shape, x.shape, strict=True)):
        wanted = ", ".join("*" if want is None else str(want) for want in shape)
        raise ValueError(f"{name} has shape {tuple(x.shape)}, it must be [{wanted}]")


def check_float(name: str, x: torch.Tensor) -> None:
    """Raises ValueError unless x is bfloat16, float16 or float32."""
    if x.dtype not in FLOATS:
        raise ValueError(f"{name} is {x.dtype}, it must be one of {', '.join(str(dtype) for dtype in FLOATS)}")


def check_dtype(name: str, x: torch.Tensor, *allowed: torch.dtype) -> None:
    """Raises ValueError unless x has one of these types."""
    if x.dtype not in allowed:
        raise ValueError(f"{name} is {x.dtype}, it must be {' or '.join(str(dtype) for dtype in allowed)}")


def check_last_dim(name: str, x: torch.Tensor) -> None:
    """Raises ValueError unless neighbours in the last dimension are neighbours in memory; other strides are free."""
    if x.shape[-1] > 1 and x.stride(-1) != 1:
        raise ValueError(f"{name} has strides {x.stride()}, the last one must be 1")


def check_same_device(**tensors: torch.Tensor) -> None:
    """Raises ValueError unless all tensors are on one device."""
    if len({x.device for x in tensors.values()}) > 1:
        places = ", ".join(f"{name} on {x.device}" for name, x in tensors.items())
        raise ValueError(f"all tensors must be on one device: {places}")
