"""Decode over the paged cache: one query a request, its context split over programs, partial results reduced after.

Splitting the context follows Flash-Decoding (Dao, Haziza, Massa, Sizov 2023); the running softmax is that of Milakov
and Gimelshein, "Online normalizer calculation for softmax" (2018). Decode is bound by reading keys and values, so all
query heads of a KV head share one program and every block is read once.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from infradoc_kernels.launch import (
    TRITON_NAMES,
    next_power_of_2,
    on_device,
)
from infradoc_kernels.paged_attention_settings import (
    KNOWN_LIMITS,
    LOG2_E,
    MIN_TILES,
    Splits,
    aot_signature,
    check_attention,
    choose_splits,
    decode_tiling,
    divisible_strides,
    dot_precision,
    limits_of,
)
from infradoc_kernels.paged_batch import PagedBatch

if TYPE_CHECKING:
    from infradoc_kernels.aot import AotConfiguration

REDUCE_CHUNK = 16  # partial results that the second pass holds at a time
REDUCE_WARPS = 4


@triton.jit
def _split_bounds(context_len, window, num_splits, min_tiles, TILE: tl.constexpr):
    """First key in sight, first tile, one past the last tile, tiles of a split. Both passes must agree on them."""
    first_key = tl.where(window > 0, tl.maximum(context_len - window, 0), 0)
    first_tile = first_key // TILE
    end_tile = tl.cdiv(context_len, TILE)
    per_split = tl.maximum(tl.cdiv(end_tile - first_tile, num_splits), min_tiles)
    return first_key, first_tile, end_tile, per_split


# What changes from step to step is not specialised on: every new case would be a compile in the middle of serving.
@triton.jit(do_not_specialize=["window", "num_splits", "min_tiles", "stride_table"])
def _decode_split_kernel(
    q_ptr,  # [num_tokens, num_heads, head_dim]
    k_ptr,  # [num_blocks, num_kv_heads, block_size, head_dim]
    v_ptr,
    out_ptr,  # [num_tokens, num_heads, head_dim]
    partial_ptr,  # float32 [num_decodes, num_heads, splits, head_dim], contiguous
    peak_ptr,  # float32 [num_decodes, num_heads, splits], contiguous: log2 of the sum of exponentials
    tables_ptr,
    starts_ptr,
    lens_ptr,
    requests_ptr,
    scale_log2,
    window,
    num_splits,
    min_tiles,
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
    PRECISION: tl.constexpr,
):
    HEAD_TILES: tl.constexpr = (GROUP + ROWS - 1) // ROWS
    # Heads vary fastest: programs that run together then read neighbouring parts of the same blocks.
    head_program = tl.program_id(0)
    split = tl.program_id(1)
    place = tl.program_id(2)
    request = tl.load(requests_ptr + place)
    if request < 0:  # a place that a captured launch left unused
        return
    context_len = tl.load(lens_ptr + request)
    first_key, first_tile, end_tile, per_split = _split_bounds(context_len, window, num_splits, min_tiles, TILE)
    tile_start = first_tile + split * per_split
    tile_end = tl.minimum(tile_start + per_split, end_tile)
    if tile_start >= tile_end:
        return

    kv_head = head_program // HEAD_TILES
    member = (head_program % HEAD_TILES) * ROWS + tl.arange(0, ROWS)
    heads = kv_head * GROUP + member
    dims = tl.arange(0, BLOCK_D)
    row_mask = (member[:, None] < GROUP) & (dims[None, :] < HEAD_DIM)
    token = tl.load(starts_ptr + request).to(tl.int64)
    q_rows = q_ptr + token * stride_q_token + heads[:, None].to(tl.int64) * stride_q_head
    q = tl.load(q_rows + dims[None, :], mask=row_mask, other=0.0)

    table = tables_ptr + request.to(tl.int64) * stride_table
    k_head = k_ptr + kv_head.to(tl.int64) * stride_k_head + dims[None, :]
    v_head = v_ptr + kv_head.to(tl.int64) * stride_v_head + dims[None, :]
    # The lowest finite number, not -inf: -inf minus -inf is NaN.
    peak = tl.full([ROWS], -3.0e38, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, BLOCK_D], tl.float32)
    # Block ids are read an iteration ahead of the keys they lead to, and in registers: as a load of this iteration the
    # compiler would give them pipeline stages of their own, at the cost of the keys'.
    keys = tile_start * TILE + tl.arange(0, TILE)
    blocks = tl.load(table + keys // BLOCK_SIZE, mask=keys < context_len, other=0)
    for tile in range(tile_start, tile_end):
        keys = tile * TILE + tl.arange(0, TILE)
        # Masked: what lies beyond a request's own slots may hold NaN, and 0 * NaN is not 0.
        seen = (keys >= first_key) & (keys < context_len)
        kv_mask = seen[:, None]
        if HEAD_DIM < BLOCK_D:
            kv_mask = kv_mask & (dims[None, :] < HEAD_DIM)
        # int64: block id times stride passes 2^31 in large pools.
        block = blocks.to(tl.int64)
        slot = (keys % BLOCK_SIZE).to(tl.int64)
        k = tl.load(k_head + (block * stride_k_block + slot * stride_k_slot)[:, None], mask=kv_mask, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale_log2
        scores = tl.where(seen[None, :], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(peak - higher)
        total = total * shrink + tl.sum(weights, 1)
        v = tl.load(v_head + (block * stride_v_block + slot * stride_v_slot)[:, None], mask=kv_mask, other=0.0)
        acc = acc * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
        peak = higher
        ahead = keys + TILE
        blocks = tl.load(table + ahead // BLOCK_SIZE, mask=ahead < context_len, other=0)

    acc = acc / total[:, None]
    if per_split >= end_tile - first_tile:  # the only split of this request: nothing to reduce
        out_rows = out_ptr + token * stride_out_token + heads[:, None].to(tl.int64) * stride_out_head
        tl.store(out_rows + dims[None, :], acc.to(out_ptr.dtype.element_ty), mask=row_mask)
    else:
        num_heads = GROUP * (tl.num_programs(0) // HEAD_TILES)
        rows = (place.to(tl.int64) * num_heads + heads) * num_splits + split
        tl.store(partial_ptr + rows[:, None] * HEAD_DIM + dims[None, :], acc, mask=row_mask)
        tl.store(peak_ptr + rows, peak + tl.log2(total), mask=member < GROUP)


@triton.jit(do_not_specialize=["window", "num_splits", "min_tiles"])
def _reduce_splits_kernel(
    partial_ptr,  # as the first pass wrote them
    peak_ptr,
    out_ptr,
    starts_ptr,
    lens_ptr,
    requests_ptr,
    window,
    num_splits,
    min_tiles,
    stride_out_token,
    stride_out_head,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
):
    head = tl.program_id(0)
    place = tl.program_id(1)
    request = tl.load(requests_ptr + place)
    if request < 0:
        return
    context_len = tl.load(lens_ptr + request)
    _, first_tile, end_tile, per_split = _split_bounds(context_len, window, num_splits, min_tiles, TILE)
    if per_split >= end_tile - first_tile:  # the first pass wrote the row itself
        return
    used = tl.cdiv(end_tile - first_tile, per_split)
    dims = tl.arange(0, BLOCK_D)
    row = (place.to(tl.int64) * tl.num_programs(0) + head) * num_splits
    highest = tl.full([1], -3.0e38, tl.float32)
    total = tl.zeros([1], tl.float32)
    acc = tl.zeros([BLOCK_D], tl.float32)
    for start in range(0, used, CHUNK):
        splits = start + tl.arange(0, CHUNK)
        peaks = tl.load(peak_ptr + row + splits, mask=splits < used, other=float("-inf"))
        mask = (splits[:, None] < used) & (dims[None, :] < HEAD_DIM)
        parts = tl.load(partial_ptr + (row + splits)[:, None] * HEAD_DIM + dims[None, :], mask=mask, other=0.0)
        higher = tl.maximum(highest, tl.max(peaks, 0))
        weights = tl.exp2(peaks - higher)
        shrink = tl.exp2(highest - higher)
        total = total * shrink + tl.sum(weights, 0)
        acc = acc * shrink + tl.sum(parts * weights[:, None], 0)
        highest = higher
    token = tl.load(starts_ptr + request).to(tl.int64)
    out_row = out_ptr + token * stride_out_token + head.to(tl.int64) * stride_out_head
    tl.store(out_row + dims, (acc / total).to(out_ptr.dtype.element_ty), mask=dims < HEAD_DIM)


@dataclass(frozen=True, slots=True)
class DecodeScratch:
    """Partial results of the splits, float32. Contents need no reset between launches."""

    partial: torch.Tensor  # flat, at least num_decodes * num_heads * splits * head_dim
    peaks: torch.Tensor  # flat, at least num_decodes * num_heads * splits


def allocate_decode_scratch(
    num_decodes: int, num_heads: int, head_dim: int, num_splits: int, device: torch.device | str
) -> DecodeScratch:
    """Scratch for launches of up to this size; a captured launch keeps its own for as long as it is replayed."""
    rows = num_decodes * num_heads * num_splits
    return DecodeScratch(*(torch.empty(n, dtype=torch.float32, device=device) for n in (rows * head_dim, rows)))


def plan_decode_splits(q: torch.Tensor, k_cache: torch.Tensor, batch: PagedBatch, *, captured: bool = False) -> Splits:
    """The splits that paged_attention_decode takes unless told. Host arithmetic: nothing waits for the device.

    `captured`: for a launch that a CUDA graph replays over contexts of any length up to batch.max_context_len.
    """
    limits = limits_of(q.device)
    group = q.shape[1] // k_cache.shape[1]
    tiling = decode_tiling(group, q.shape[2], q.element_size(), limits)
    longest, tokens = batch.max_context_len, 0
    if not captured:
        longest, tokens = batch.max_decode_len or longest, batch.decode_tokens
    tokens = tokens or longest * batch.decode_requests.numel()
    if batch.window:
        longest = min(longest, batch.window)
        tokens = min(tokens, longest * batch.decode_requests.numel())
    programs = k_cache.shape[1] * -(-group // tiling.rows)
    # A window that starts within a tile takes one more.
    max_tiles = -(-longest // tiling.keys) + (1 if batch.window else 0)
    total_tiles = -(-tokens // tiling.keys)
    slots = limits.processors * tiling.resident
    splits = choose_splits(batch.decode_requests.numel(), programs, max_tiles, total_tiles, slots)
    # Replayed over shorter contexts, as many splits are wanted, each of fewer tiles.
    return Splits(splits.count, min(MIN_TILES, splits.min_tiles)) if captured else splits


def paged_attention_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    batch: PagedBatch,
    softmax_scale: float,
    out: torch.Tensor,
    *,
    splits: Splits | None = None,
    scratch: DecodeScratch | None = None,
) -> None:
    """Attention of the batch's decode requests; fills their rows of `out` and touches no others.

    q, out: [num_tokens, num_heads, head_dim], any strides but the last, which is 1; caches: [num_blocks, num_kv_heads,
    block_size, head_dim], likewise; all of one type: bfloat16, float16 or float32. Sums are float32. Query head h reads
    KV head h // (num_heads // num_kv_heads). Slots beyond a request's context are not read. An entry of
    batch.decode_requests below 0 is an unused place.

    In a CUDA graph pass `splits` (of plan_decode_splits with captured=True) and `scratch`: grid and buffers then depend
    on them and on the number of places alone; lengths and block tables are read from the batch's tensors at each
    replay.
    Raises ValueError for shapes, types, strides or devices that do not fit.
    """
    num_decodes = batch.decode_requests.numel()
    check_attention(q, k_cache, v_cache, batch, out)
    if num_decodes == 0:
        return
    num_heads, head_dim = q.shape[1:]
    num_kv_heads, block_size = k_cache.shape[1:3]
    limits = limits_of(q.device)
    group = num_heads // num_kv_heads
    tiling = decode_tiling(group, head_dim, q.element_size(), limits)
    splits = splits or plan_decode_splits(q, k_cache, batch, captured=batch.captured)
    if splits.count < 1 or splits.min_tiles < 1:
        raise ValueError(f"{splits}: both must be 1 or more")
    if scratch is None:  # one split writes to `out` alone, but the launch wants an address
        places = num_decodes if splits.count > 1 else 0
        scratch = allocate_decode_scratch(places, num_heads, head_dim, splits.count, q.device)
    rows = num_decodes * num_heads * splits.count
    if splits.count > 1 and (scratch.partial.numel() < rows * head_dim or scratch.peaks.numel() < rows):
        raise ValueError(
            f"scratch holds {scratch.partial.numel()} values and {scratch.peaks.numel()} peaks, "
            f"{num_decodes} requests x {num_heads} heads x {splits.count} splits need {rows * head_dim} and {rows}"
        )
    programs = num_kv_heads * -(-group // tiling.rows)
    block_d = next_power_of_2(head_dim)
    with on_device(q):
        _decode_split_kernel[(programs, splits.count, num_decodes)](
            q,
            k_cache,
            v_cache,
            out,
            scratch.partial,
            scratch.peaks,
            batch.block_tables,
            batch.query_starts,
            batch.context_lens,
            batch.decode_requests,
            softmax_scale * LOG2_E,
            batch.window,
            splits.count,
            splits.min_tiles,
            batch.block_tables.stride(0),
            *q.stride()[:2],
            *k_cache.stride()[:3],
            *v_cache.stride()[:3],
            *out.stride()[:2],
            GROUP=group,
            ROWS=tiling.rows,
            HEAD_DIM=head_dim,
            BLOCK_D=block_d,
            BLOCK_SIZE=block_size,
            TILE=tiling.keys,
            PRECISION=dot_precision(limits.backend, q.dtype, head_dim),
            num_warps=tiling.num_warps,
            num_stages=tiling.num_stages,
        )
        if splits.count > 1:
            _reduce_splits_kernel[(num_heads, num_decodes)](
                scratch.partial,
                scratch.peaks,
                out,
                batch.query_starts,
                batch.context_lens,
                batch.decode_requests,
                batch.window,
                splits.count,
                splits.min_tiles,
                *out.stride()[:2],
                HEAD_DIM=head_dim,
                BLOCK_D=block_d,
                TILE=tiling.keys,
                CHUNK=REDUCE_CHUNK,
                num_warps=REDUCE_WARPS,
            )


# Group, head_dim, block_size, type: Llama-3-8B first, SmolLM2-135M, then the corners of head_dim, group and type.
AOT_SHAPES = (
    (4, 128, 16, torch.bfloat16),
    (3, 64, 16, torch.bfloat16),
    (1, 80, 8, torch.float16),
    (8, 96, 32, torch.bfloat16),
    (16, 256, 128, torch.bfloat16),
    (71, 64, 16, torch.bfloat16),
    (64, 128, 16, torch.bfloat16),
    (64, 256, 64, torch.float16),
    (4, 128, 16, torch.float32),
    (3, 64, 16, torch.float32),
    (1, 256, 16, torch.float32),
)


def target_configurations(target: str) -> list[AotConfiguration]:
    """What a launch on this target (a key of KNOWN_LIMITS) takes, for every shape."""
    from infradoc_kernels.aot import AotConfiguration  # late: it brings the compiler, which launching does not need

    limits = KNOWN_LIMITS[target]
    out = []
    for group, head_dim, block_size, dtype in AOT_SHAPES:
        tiling = decode_tiling(group, head_dim, dtype.itemsize, limits)
        sizes = {"HEAD_DIM": head_dim, "BLOCK_D": next_power_of_2(head_dim), "TILE": tiling.keys}
        shape = {"GROUP": group, "ROWS": tiling.rows, "BLOCK_SIZE": block_size}
        precision = {"PRECISION": dot_precision(limits.backend, dtype, head_dim)}
        names = _decode_split_kernel.arg_names
        out.append(
            AotConfiguration(
                f"group{group}-d{head_dim}-block{block_size}-tile{tiling.keys}-{TRITON_NAMES[dtype]}",
                _decode_split_kernel,
                aot_signature(names, dtype),
                sizes | shape | precision,
                tiling.num_warps,
                tiling.num_stages,
                divisible_strides(names),
            )
        )
        names = _reduce_splits_kernel.arg_names
        out.append(
            AotConfiguration(
                f"d{head_dim}-tile{tiling.keys}-{TRITON_NAMES[dtype]}",
                _reduce_splits_kernel,
                aot_signature(names, dtype),
                sizes | {"CHUNK": REDUCE_CHUNK},
                REDUCE_WARPS,
                divisible=divisible_strides(names),
            )
        )
    return list({(one.fn.__name__, one.name): one for one in out}.values())


def aot_configurations() -> list[AotConfiguration]:
    """What Hopper launches; other targets have tiles of their own: target_configurations."""
    return target_configurations("sm_90")
