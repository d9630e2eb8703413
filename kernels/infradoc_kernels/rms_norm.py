"""Root-mean-square normalisation with the residual addition before it, in one pass over the row."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
from __future__ import annotations

import torch
import triton
import triton.language as tl

from infradoc_kernels import launch
from infradoc_kernels.aot import AotConfiguration

MAX_HIDDEN = 16384  # a row stays in registers: 512 threads x 32 values; twice that spills on sm_90


@triton.jit
def _rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    y_ptr,
    summed_ptr,
    stride_x,
    stride_residual,
    hidden,
    eps,
    HAS_RESIDUAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # One program a row. int64: row times stride passes 2^31 in long prefills of wide models.
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < hidden
    wide = tl.load(x_ptr + row * stride_x + column, mask=inside, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        wide += tl.load(residual_ptr + row * stride_residual + column, mask=inside, other=0.0).to(tl.float32)
        # The sum goes on in its own type: the next layer must add to the very values that were normalised here.
        summed = wide.to(summed_ptr.dtype.element_ty)
        tl.store(summed_ptr + row * hidden + column, summed, mask=inside)
        wide = summed.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / hidden + eps)
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    # Rounded before the weight, as the reference and the checkpoints' own code do.
    normed = (wide * scale).to(y_ptr.dtype.element_ty).to(tl.float32)
    tl.store(y_ptr + row * hidden + column, (normed * weight).to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """y = s / sqrt(mean(s^2) + eps) * weight with s = x + residual; returns (y, s); s is x itself without a residual.

    x, residual: [num_tokens, hidden], rows may be strided; weight: [hidden]; bfloat16, float16 or float32; statistics
    in float32; y and s in x's dtype, contiguous. Raises ValueError for shapes, strides and types that do not fit, and
    for rows wider than MAX_HIDDEN.
    """
    launch.check_shape("x", x, (None, None))
    num_tokens, hidden = x.shape
    launch.check_shape("weight", weight, (hidden,))
    launch.check_float("x", x)
    launch.check_float("weight", weight)
    launch.check_last_dim("x", x)
    launch.check_last_dim("weight", weight)
    launch.check_same_device(x=x, weight=weight)
    if not 0 < hidden <= MAX_HIDDEN:
        raise ValueError(f"rows are {hidden} wide, the kernel takes 1 to {MAX_HIDDEN}")
    if residual is not None:
        launch.check_shape("residual", residual, (num_tokens, hidden))
        launch.check_dtype("residual", residual, x.dtype)
        launch.check_last_dim("residual", residual)
        launch.check_same_device(x=x, residual=residual)
    y = torch.empty((num_tokens, hidden), dtype=x.dtype, device=x.device)
    summed = x if residual is None else torch.empty_like(y)
    if num_tokens == 0:
        return y, summed
    block, num_warps = _settings(hidden)
    with launch.on_device(x):
        _rms_norm_kernel[(num_tokens,)](
            x,
            x if residual is None else residual,
            weight,
            y,
            summed,
            x.stride(0),
            0 if residual is None else residual.stride(0),
            hidden,
            eps,
            HAS_RESIDUAL=residual is not None,
            BLOCK=block,
            num_warps=num_warps,
        )
    return y, summed


def _settings(hidden: int) -> tuple[int, int]:
    """Tile and warps: 16 values a thread up to 16 warps, then 32 a thread."""
    block = launch.next_power_of_2(hidden)
    return block, launch.warps_for(block, per_thread=16)


def aot_configurations() -> list[AotConfiguration]:
    """Shipped shapes: hidden sizes of SmolLM2-135M, Llama-7B and the widest common models."""
    shapes = [(4096, "bf16", True), (4096, "bf16", False), (576, "fp32", True), (8192, "fp16", True)]
    shapes += [(16384, "bf16", True), (16384, "fp32", True)]
    return [_configuration(*shape) for shape in shapes]


def _configuration(hidden: int, dtype: str, with_residual: bool) -> AotConfiguration:
    block, num_warps = _settings(hidden)
    pointers = dict.fromkeys(("x_ptr", "residual_ptr", "weight_ptr", "y_ptr", "summed_ptr"), f"*{dtype}")
    integers = dict.fromkeys(("stride_x", "stride_residual", "hidden"), "i32")
    return AotConfiguration(
        name=f"hidden{hidden}-{dtype}{'-residual' if with_residual else ''}",
        fn=_rms_norm_kernel,
        signature=pointers | integers | {"eps": "fp32"},
        constexprs={"HAS_RESIDUAL": with_residual, "BLOCK": block},
        num_warps=num_warps,
        divisible=tuple(integers),
    )
