"""The gate of the feed-forward part: both halves are read once, the product is written once."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
from __future__ import annotations

import torch
import triton
import triton.language as tl

from infradoc_kernels import launch
from infradoc_kernels.aot import AotConfiguration

BLOCK = 1024
NUM_WARPS = 4


@triton.jit
def _silu_and_mul_kernel(x_ptr, y_ptr, stride_x, inner, BLOCK: tl.constexpr):
    # One program a row and tile of columns. int64: row times stride passes 2^31 in long prefills of wide models.
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < inner
    gate = tl.load(x_ptr + row * stride_x + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * stride_x + inner + column, mask=inside, other=0.0).to(tl.float32)
    # Rounded between the two steps, as the reference does.
    gated = (gate * tl.sigmoid(gate)).to(y_ptr.dtype.element_ty).to(tl.float32)
    tl.store(y_ptr + row * inner + column, (gated * up).to(y_ptr.dtype.element_ty), mask=inside)


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """silu(x[:, :inner]) * x[:, inner:] for x: [num_tokens, 2 * inner]; returns [num_tokens, inner], contiguous.

    bfloat16, float16 or float32; rows may be strided. Raises ValueError for shapes, strides and types that do not fit.
    """
    launch.check_shape("x", x, (None, None))
    num_tokens, both = x.shape
    if both % 2:
        raise ValueError(f"rows are {both} wide, which is no gate and value of one width: it must be even")
    launch.check_float("x", x)
    launch.check_last_dim("x", x)
    inner = both // 2
    y = torch.empty((num_tokens, inner), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    with launch.on_device(x):
        _silu_and_mul_kernel[(num_tokens, triton.cdiv(inner, BLOCK))](
            x, y, x.stride(0), inner, BLOCK=BLOCK, num_warps=NUM_WARPS
        )
    return y


def aot_configurations() -> list[AotConfiguration]:
    """Shipped types; the tile is the same for all widths."""
    return [
        AotConfiguration(
            name=f"tile{BLOCK}-{dtype}",
            fn=_silu_and_mul_kernel,
            signature={"x_ptr": f"*{dtype}", "y_ptr": f"*{dtype}", "stride_x": "i32", "inner": "i32"},
            constexprs={"BLOCK": BLOCK},
            num_warps=NUM_WARPS,
            divisible=("stride_x", "inner"),
        )
        for dtype in ("bf16", "fp16", "fp32")
    ]
