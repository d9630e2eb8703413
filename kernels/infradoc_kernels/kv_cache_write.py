"""Puts new keys and values into the paged cache, both in one launch."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
from __future__ import annotations

import torch
import triton
import triton.language as tl

from infradoc_kernels import launch
from infradoc_kernels.aot import AotConfiguration

TILE = 2048  # values of a program: 16 KV heads of 128


@triton.jit
def _kv_cache_write_kernel(
    k_ptr,
    v_ptr,
    k_cache_ptr,
    v_cache_ptr,
    slots_ptr,
    stride_k_token,
    stride_k_head,
    stride_v_token,
    stride_v_head,
    stride_block,
    stride_cache_head,
    stride_offset,
    num_kv_heads,
    head_dim,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
):
    # One program a token and group of KV heads. int64 before any product: block id times stride passes 2^31 in large
    # pools, token times stride in long prefills.
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + token).to(tl.int64)
    head = (tl.program_id(1) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)).to(tl.int64)
    dim = tl.arange(0, BLOCK_DIM)
    inside = (head < num_kv_heads)[:, None] & (dim < head_dim)[None, :]
    k = tl.load(k_ptr + token * stride_k_token + head[:, None] * stride_k_head + dim[None, :], mask=inside)
    v = tl.load(v_ptr + token * stride_v_token + head[:, None] * stride_v_head + dim[None, :], mask=inside)
    row = (slot // BLOCK_SIZE) * stride_block + (slot % BLOCK_SIZE) * stride_offset
    target = row + head[:, None] * stride_cache_head + dim[None, :]
    # A negative slot is a padding row of a captured graph: it belongs to no request and is written nowhere.
    if slot >= 0:
        tl.store(k_cache_ptr + target, k, mask=inside)
        tl.store(v_cache_ptr + target, v, mask=inside)


def kv_cache_write(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor,
    rows: torch.Tensor | None = None,
) -> None:
    """Writes k, v: [num_tokens, num_kv_heads, head_dim] at slots: [num_tokens] int64 or int32, in place.

    The caches are [num_blocks, num_kv_heads, block_size, head_dim] with the same strides; a slot is block id *
    block_size + offset and must lie in them: it is not read back to be checked, that would stop the host. Rows with a
    negative slot are skipped. k and v may be strided views of a fused projection. `rows` is what the other versions
    take instead of slots; it is not needed here. Raises ValueError for shapes, strides and types that do not fit.
    """
    launch.check_shape("k_cache", k_cache, (None, None, None, None))
    _, num_kv_heads, block_size, head_dim = k_cache.shape
    launch.check_shape("v_cache", v_cache, tuple(k_cache.shape))
    if k_cache.stride() != v_cache.stride():
        raise ValueError(f"k_cache has strides {k_cache.stride()}, v_cache {v_cache.stride()}: they must be the same")
    launch.check_shape("k", k, (None, num_kv_heads, head_dim))
    launch.check_shape("v", v, tuple(k.shape))
    launch.check_shape("slots", slots, (k.shape[0],))
    launch.check_dtype("slots", slots, torch.int64, torch.int32)
    launch.check_last_dim("slots", slots)
    launch.check_float("k_cache", k_cache)
    for name, x in (("k", k), ("v", v), ("k_cache", k_cache), ("v_cache", v_cache)):
        launch.check_dtype(name, x, k_cache.dtype)
        launch.check_last_dim(name, x)
    launch.check_same_device(k=k, v=v, k_cache=k_cache, v_cache=v_cache, slots=slots)
    if k.numel() == 0:
        return
    block_heads, block_dim, num_warps = _settings(num_kv_heads, head_dim)
    with launch.on_device(k):
        _kv_cache_write_kernel[(k.shape[0], triton.cdiv(num_kv_heads, block_heads))](
            k,
            v,
            k_cache,
            v_cache,
            slots,
            k.stride(0),
            k.stride(1),
            v.stride(0),
            v.stride(1),
            k_cache.stride(0),
            k_cache.stride(1),
            k_cache.stride(2),
            num_kv_heads,
            head_dim,
            BLOCK_SIZE=block_size,
            BLOCK_HEADS=block_heads,
            BLOCK_DIM=block_dim,
            num_warps=num_warps,
        )


def _settings(num_kv_heads: int, head_dim: int) -> tuple[int, int, int]:
    """KV heads and values of a tile, and warps."""
    block_dim = launch.next_power_of_2(head_dim)
    block_heads = min(launch.next_power_of_2(num_kv_heads), max(1, TILE // block_dim))
    return block_heads, block_dim, launch.warps_for(block_heads * block_dim, most=8)


def aot_configurations() -> list[AotConfiguration]:
    """Shipped shapes: Llama-7B, Llama-3-8B and SmolLM2-135M, and odd head sizes."""
    shapes = [(32, 128, 16, "bf16"), (8, 128, 16, "bf16"), (3, 64, 16, "fp32"), (32, 80, 128, "fp16")]
    shapes += [(4, 256, 32, "bf16")]
    return [_configuration(*shape) for shape in shapes]


def _configuration(num_kv_heads: int, head_dim: int, block_size: int, dtype: str) -> AotConfiguration:
    block_heads, block_dim, num_warps = _settings(num_kv_heads, head_dim)
    pointers = dict.fromkeys(("k_ptr", "v_ptr", "k_cache_ptr", "v_cache_ptr"), f"*{dtype}")
    names = ("stride_k_token", "stride_k_head", "stride_v_token", "stride_v_head")
    strides = dict.fromkeys((*names, "stride_block", "stride_cache_head", "stride_offset"), "i32")
    sizes = {"num_kv_heads": num_kv_heads, "head_dim": head_dim}
    return AotConfiguration(
        name=f"kv{num_kv_heads}x{head_dim}-block{block_size}-{dtype}",
        fn=_kv_cache_write_kernel,
        signature=pointers | {"slots_ptr": "*i64"} | strides | dict.fromkeys(sizes, "i32"),
        constexprs={"BLOCK_SIZE": block_size, "BLOCK_HEADS": block_heads, "BLOCK_DIM": block_dim},
        num_warps=num_warps,
        divisible=tuple(strides) + tuple(name for name, size in sizes.items() if size % 16 == 0),
    )
