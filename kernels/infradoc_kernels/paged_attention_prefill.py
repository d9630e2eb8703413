"""Prefill over the paged cache: each request's chunk of queries at the end of its context, in one launch for all.

The tiling over queries and keys with a running softmax is that of FlashAttention-2 (Dao 2023). Rows of a tile are
(query, query head) pairs of one KV head, so that grouped heads share every block read, whatever the size of the group,
and a short chunk still fills a tile.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from infradoc_kernels.launch import TRITON_NAMES, next_power_of_2, on_device
from infradoc_kernels.paged_attention_settings import (
    KNOWN_LIMITS,
    LOG2_E,
    aot_signature,
    check_attention,
    divisible_strides,
    dot_precision,
    limits_of,
    prefill_tiling,
)
from infradoc_kernels.paged_batch import PagedBatch

if TYPE_CHECKING:
    from infradoc_kernels.aot import AotConfiguration


@triton.jit
def _attend(
    acc,
    total,
    peak,
    q,
    k_head,
    v_head,
    table,
    dims,
    positions,
    start,
    end,
    window,
    scale_log2,
    stride_k_block,
    stride_k_slot,
    stride_v_block,
    stride_v_slot,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    MASKED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Adds keys start..end - 1 to the running softmax; `start` is a multiple of TILE. Without MASKED `end` is one too,
    and every row sees all of them."""
    # Block ids are read an iteration ahead of the keys they lead to, as in decode.
    keys = start + tl.arange(0, TILE)
    blocks = tl.load(table + keys // BLOCK_SIZE, mask=keys < end, other=0)
    for tile_start in range(start, end, TILE):
        keys = tile_start + tl.arange(0, TILE)
        # int64: block id times stride passes 2^31 in large pools.
        block = blocks.to(tl.int64)
        slot = (keys % BLOCK_SIZE).to(tl.int64)
        kv_mask = tl.full([TILE, 1], True, tl.int1)
        if HEAD_DIM < BLOCK_D:
            kv_mask = kv_mask & (dims[None, :] < HEAD_DIM)
        if MASKED:  # what lies beyond a request's own slots may hold NaN, and 0 * NaN is not 0
            kv_mask = kv_mask & (keys[:, None] < end)
        k = tl.load(k_head + (block * stride_k_block + slot * stride_k_slot)[:, None], mask=kv_mask, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale_log2
        if MASKED:
            distance = positions[:, None] - keys[None, :]
            visible = distance >= 0
            if HAS_WINDOW:
                visible = visible & (distance < window)
            scores = tl.where(visible, scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(peak - higher)
        total = total * shrink + tl.sum(weights, 1)
        v = tl.load(v_head + (block * stride_v_block + slot * stride_v_slot)[:, None], mask=kv_mask, other=0.0)
        acc = acc * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
        peak = higher
        ahead = keys + TILE
        blocks = tl.load(table + ahead // BLOCK_SIZE, mask=ahead < end, other=0)
    return acc, total, peak


@triton.jit(do_not_specialize=["window", "stride_table"])
def _prefill_kernel(
    q_ptr,  # [num_tokens, num_heads, head_dim]
    k_ptr,  # [num_blocks, num_kv_heads, block_size, head_dim]
    v_ptr,
    out_ptr,  # [num_tokens, num_heads, head_dim]
    tables_ptr,
    starts_ptr,
    lens_ptr,
    requests_ptr,
    scale_log2,
    window,
    stride_table,
    stride_q_token,
    stride_q_head,
    stride_k_block,
    stride_k_head,
    stride_k_slot,
    stride_v_block,
    stride_v_head,
    stride_v_slot,
    stride_out_token,
    stride_out_head,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    PRECISION: tl.constexpr,
):
    # The last queries see the most keys: they go first, so that no long program starts when the others end.
    row_tile = tl.num_programs(0) - 1 - tl.program_id(0)
    kv_head = tl.program_id(1)
    request = tl.load(requests_ptr + tl.program_id(2))
    if request < 0:  # a place that a captured launch left unused
        return
    query_start = tl.load(starts_ptr + request)
    query_len = tl.load(starts_ptr + request + 1) - query_start
    num_rows = query_len * GROUP
    if row_tile * ROWS >= num_rows:
        return

    rows = row_tile * ROWS + tl.arange(0, ROWS)
    query = rows // GROUP
    heads = kv_head * GROUP + rows % GROUP
    first_position = tl.load(lens_ptr + request) - query_len  # of the chunk
    positions = first_position + query
    dims = tl.arange(0, BLOCK_D)
    row_mask = (rows[:, None] < num_rows) & (dims[None, :] < HEAD_DIM)
    tokens = (query_start + query).to(tl.int64)
    q_rows = q_ptr + tokens[:, None] * stride_q_token + heads[:, None].to(tl.int64) * stride_q_head
    q = tl.load(q_rows + dims[None, :], mask=row_mask, other=0.0)

    # Keys before `shared` are seen by all rows of the tile; the rest, up to the last row's own, needs the mask.
    tile_first = first_position + row_tile * ROWS // GROUP
    end = first_position + (tl.minimum(row_tile * ROWS + ROWS, num_rows) - 1) // GROUP + 1
    if HAS_WINDOW:
        start = tl.maximum(tile_first - window + 1, 0) // TILE * TILE
        shared = start
    else:
        start = 0
        shared = (tile_first + 1) // TILE * TILE

    table = tables_ptr + request.to(tl.int64) * stride_table
    k_head = k_ptr + kv_head.to(tl.int64) * stride_k_head + dims[None, :]
    v_head = v_ptr + kv_head.to(tl.int64) * stride_v_head + dims[None, :]
    # The lowest finite number, not -inf: a row may see nothing of a tile, and -inf minus -inf is NaN.
    peak = tl.full([ROWS], -3.0e38, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, BLOCK_D], tl.float32)
    if not HAS_WINDOW:
        acc, total, peak = _attend(
            acc, total, peak, q, k_head, v_head, table, dims, positions, start, shared, window, scale_log2,
            stride_k_block, stride_k_slot, stride_v_block, stride_v_slot,
            HEAD_DIM, BLOCK_D, BLOCK_SIZE, TILE, HAS_WINDOW, False, PRECISION,
        )  # fmt: skip
    acc, total, peak = _attend(
        acc, total, peak, q, k_head, v_head, table, dims, positions, shared, end, window, scale_log2,
        stride_k_block, stride_k_slot, stride_v_block, stride_v_slot,
        HEAD_DIM, BLOCK_D, BLOCK_SIZE, TILE, HAS_WINDOW, True, PRECISION,
    )  # fmt: skip
    out_rows = out_ptr + tokens[:, None] * stride_out_token + heads[:, None].to(tl.int64) * stride_out_head
    tl.store(out_rows + dims[None, :], (acc / total[:, None]).to(out_ptr.dtype.element_ty), mask=row_mask)


def paged_attention_prefill(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    batch: PagedBatch,
    softmax_scale: float,
    out: torch.Tensor,
) -> None:
    """Causal attention of the batch's prefill requests; fills their rows of `out` and touches no others.

    q, out: [num_tokens, num_heads, head_dim], any strides but the last, which is 1; caches: [num_blocks, num_kv_heads,
    block_size, head_dim], likewise; all of one type: bfloat16, float16 or float32. Sums are float32. The keys and
    values of the chunk itself are read from the cache too: they must have been written. Query head h reads KV head
    h // (num_heads // num_kv_heads). Slots beyond a request's context are not read. An entry of batch.prefill_requests
    below 0 is an unused place. Raises ValueError for shapes, types, strides or devices that do not fit.
    """
    check_attention(q, k_cache, v_cache, batch, out)
    places = batch.prefill_requests.numel()
    if places == 0:
        return
    num_heads, head_dim = q.shape[1:]
    num_kv_heads, block_size = k_cache.shape[1:3]
    limits = limits_of(q.device)
    group = num_heads // num_kv_heads
    query_rows = batch.max_query_len * group
    tiling = prefill_tiling(query_rows, head_dim, q.element_size(), batch.window > 0, limits)
    with on_device(q):
        _prefill_kernel[(-(-query_rows // tiling.rows), num_kv_heads, places)](
            q,
            k_cache,
            v_cache,
            out,
            batch.block_tables,
            batch.query_starts,
            batch.context_lens,
            batch.prefill_requests,
            softmax_scale * LOG2_E,
            batch.window,
            batch.block_tables.stride(0),
            *q.stride()[:2],
            *k_cache.stride()[:3],
            *v_cache.stride()[:3],
            *out.stride()[:2],
            GROUP=group,
            ROWS=tiling.rows,
            HEAD_DIM=head_dim,
            BLOCK_D=next_power_of_2(head_dim),
            BLOCK_SIZE=block_size,
            TILE=tiling.keys,
            HAS_WINDOW=batch.window > 0,
            PRECISION=dot_precision(limits.backend, q.dtype, head_dim),
            num_warps=tiling.num_warps,
            num_stages=tiling.num_stages,
        )


# Group, head_dim, block_size, type, rows of the longest chunk, window: Llama-3-8B first, SmolLM2-135M, then corners.
AOT_SHAPES = (
    (4, 128, 16, torch.bfloat16, 8192, False),
    (4, 128, 16, torch.bfloat16, 8192, True),
    (4, 128, 16, torch.bfloat16, 64, False),
    (3, 64, 16, torch.bfloat16, 8192, False),
    (3, 64, 16, torch.bfloat16, 8192, True),
    (3, 64, 16, torch.bfloat16, 64, False),
    (1, 80, 8, torch.float16, 8192, False),
    (1, 80, 8, torch.float16, 64, True),
    (8, 96, 32, torch.bfloat16, 8192, True),
    (16, 256, 128, torch.bfloat16, 8192, False),
    (4, 128, 16, torch.float32, 8192, True),
    (3, 64, 16, torch.float32, 8192, False),
    (1, 256, 16, torch.float32, 8192, False),
)


def target_configurations(target: str) -> list[AotConfiguration]:
    """What a launch on this target (a key of KNOWN_LIMITS) takes, for every shape."""
    from infradoc_kernels.aot import AotConfiguration  # late: it brings the compiler, which launching does not need

    limits, names = KNOWN_LIMITS[target], _prefill_kernel.arg_names
    out = []
    for group, head_dim, block_size, dtype, query_rows, has_window in AOT_SHAPES:
        tiling = prefill_tiling(query_rows, head_dim, dtype.itemsize, has_window, limits)
        sizes = {"HEAD_DIM": head_dim, "BLOCK_D": next_power_of_2(head_dim), "TILE": tiling.keys}
        shape = {"GROUP": group, "ROWS": tiling.rows, "BLOCK_SIZE": block_size, "HAS_WINDOW": has_window}
        tiles = f"{tiling.rows}x{tiling.keys}{'-window' if has_window else ''}"
        out.append(
            AotConfiguration(
                f"group{group}-d{head_dim}-block{block_size}-tile{tiles}-{TRITON_NAMES[dtype]}",
                _prefill_kernel,
                aot_signature(names, dtype),
                sizes | shape | {"PRECISION": dot_precision(limits.backend, dtype, head_dim)},
                tiling.num_warps,
                tiling.num_stages,
                divisible_strides(names),
            )
        )
    return out


def aot_configurations() -> list[AotConfiguration]:
    """What Hopper launches; other targets have tiles of their own: target_configurations."""
    return target_configurations("sm_90")
