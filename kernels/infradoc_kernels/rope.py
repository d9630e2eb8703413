"""Rotary positions: both halves of a head are read once, turned in float32 and written once."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
from __future__ import annotations

import torch
import triton
import triton.language as tl

from infradoc_kernels import launch
from infradoc_kernels.aot import AotConfiguration

TILE = 2048  # pairs a program turns: 32 heads of 128 values


@triton.jit
def _rope_kernel(
    x_ptr,
    cos_ptr,
    sin_ptr,
    y_ptr,
    stride_x_token,
    stride_x_head,
    stride_cos,
    stride_sin,
    num_heads,
    HALF: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
):
    # One program a token and group of heads. int64: token times stride passes 2^31 in long prefills.
    token = tl.program_id(0).to(tl.int64)
    head = (tl.program_id(1) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)).to(tl.int64)
    pair = tl.arange(0, BLOCK_HALF)
    in_half = pair < HALF
    inside = (head < num_heads)[:, None] & in_half[None, :]
    # [BLOCK_HALF], for all heads of the token; the first half of sin carries the minus sign of the rotation.
    cos_first = tl.load(cos_ptr + token * stride_cos + pair, mask=in_half, other=0.0)
    cos_second = tl.load(cos_ptr + token * stride_cos + HALF + pair, mask=in_half, other=0.0)
    sin_first = tl.load(sin_ptr + token * stride_sin + pair, mask=in_half, other=0.0)
    sin_second = tl.load(sin_ptr + token * stride_sin + HALF + pair, mask=in_half, other=0.0)
    # [BLOCK_HEADS, BLOCK_HALF]
    source = x_ptr + token * stride_x_token + head[:, None] * stride_x_head + pair[None, :]
    first = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(source + HALF, mask=inside, other=0.0).to(tl.float32)
    turned_first = first * cos_first[None, :] + second * sin_first[None, :]
    turned_second = second * cos_second[None, :] + first * sin_second[None, :]
    target = y_ptr + (token * num_heads + head[:, None]) * (2 * HALF) + pair[None, :]
    tl.store(target, turned_first.to(y_ptr.dtype.element_ty), mask=inside)
    tl.store(target + HALF, turned_second.to(y_ptr.dtype.element_ty), mask=inside)


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turns x: [num_tokens, num_heads, head_dim] by cos, sin: [num_tokens, head_dim] float32 (rows of `rope_angles`).

    x may be a strided view of a fused projection. Computed in float32, returned contiguous in x's dtype; x is not
    changed. Raises ValueError for shapes, strides and types that do not fit.
    """
    launch.check_shape("x", x, (None, None, None))
    num_tokens, num_heads, head_dim = x.shape
    if head_dim % 2:
        raise ValueError(f"heads have {head_dim} values, which do not pair up: head_dim must be even")
    launch.check_float("x", x)
    launch.check_last_dim("x", x)
    for name, angles in (("cos", cos), ("sin", sin)):
        launch.check_shape(name, angles, (num_tokens, head_dim))
        launch.check_dtype(name, angles, torch.float32)
        launch.check_last_dim(name, angles)
    launch.check_same_device(x=x, cos=cos, sin=sin)
    y = torch.empty((num_tokens, num_heads, head_dim), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    block_heads, block_half, num_warps = _settings(num_heads, head_dim)
    with launch.on_device(x):
        _rope_kernel[(num_tokens, triton.cdiv(num_heads, block_heads))](
            x,
            cos,
            sin,
            y,
            x.stride(0),
            x.stride(1),
            cos.stride(0),
            sin.stride(0),
            num_heads,
            HALF=head_dim // 2,
            BLOCK_HEADS=block_heads,
            BLOCK_HALF=block_half,
            num_warps=num_warps,
        )
    return y


def _settings(num_heads: int, head_dim: int) -> tuple[int, int, int]:
    """Heads and pairs of a tile, and warps."""
    block_half = launch.next_power_of_2(head_dim // 2)
    block_heads = min(launch.next_power_of_2(num_heads), max(1, TILE // block_half))
    return block_heads, block_half, launch.warps_for(block_heads * block_half, most=8)


def aot_configurations() -> list[AotConfiguration]:
    """Shipped shapes: query and KV heads of Llama-7B, Llama-3-8B and SmolLM2-135M, and odd head sizes."""
    shapes = [(32, 128, "bf16"), (8, 128, "bf16"), (9, 64, "fp32"), (3, 64, "fp32")]
    shapes += [(32, 80, "fp16"), (16, 256, "bf16")]
    return [_configuration(*shape) for shape in shapes]


def _configuration(num_heads: int, head_dim: int, dtype: str) -> AotConfiguration:
    block_heads, block_half, num_warps = _settings(num_heads, head_dim)
    strides = dict.fromkeys(("stride_x_token", "stride_x_head", "stride_cos", "stride_sin"), "i32")
    pointers = {"x_ptr": f"*{dtype}", "cos_ptr": "*fp32", "sin_ptr": "*fp32", "y_ptr": f"*{dtype}"}
    return AotConfiguration(
        name=f"heads{num_heads}x{head_dim}-{dtype}",
        fn=_rope_kernel,
        signature=pointers | strides | {"num_heads": "i32"},
        constexprs={"HALF": head_dim // 2, "BLOCK_HEADS": block_heads, "BLOCK_HALF": block_half},
        num_warps=num_warps,
        divisible=tuple(strides) + (("num_heads",) if num_heads % 16 == 0 else ()),
    )
