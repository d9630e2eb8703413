"""Paged attention on the CPU: the work lists of a step, and the launch of the compiled kernels over them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numba import types

from infradoc_kernels.cpu.compile import bits_of, entry, gomp_parallel, team_size
from infradoc_kernels.cpu.intrinsics import load_i64, run_team, store_i64
from infradoc_kernels.cpu.paged_attention_decode import ITEM, MAX_STRETCH, decode_body, decode_scratch
from infradoc_kernels.cpu.paged_attention_prefill import TILE, prefill_body, prefill_scratch, tile_queries
from infradoc_kernels.paged_batch import PagedBatch, plan_paged_batch

MIN_STRETCH = 32  # tokens; a shorter stretch costs as much to join as to compute
# KV bytes below which one thread attends alone: 20 microseconds of work, the price of waking a second one when the
# cores are busy with other work.
TEAM_BYTES = 1 << 19
_STRETCHES_A_THREAD = 6  # so that the threads end together, also when one of them shares its core


@dataclass(slots=True)
class CompiledPlan:
    """A PagedBatch with the work of the CPU kernels, the same in all layers. One thread uses it at a time."""

    batch: PagedBatch
    decodes: np.ndarray  # int64 [num_items, ITEM]
    num_joints: int
    threads: int
    launches: list[_Launch] | None = None  # made by the first layer, which knows the number of heads


@dataclass(slots=True)
class _Launch:
    """One kernel and its arguments; `owned` is the memory that they point to."""

    body: int
    threads: int
    args: np.ndarray  # int64
    owned: tuple[np.ndarray | torch.Tensor, ...]


def plan_compiled(
    block_tables: Sequence[Sequence[int]],
    query_lens: Sequence[int],
    context_lens: Sequence[int],
    *,
    block_size: int,
    window: int = 0,
) -> CompiledPlan:
    """Plans one step; arguments and errors as `plan_paged_batch`."""
    batch = plan_paged_batch(block_tables, query_lens, context_lens, block_size=block_size, window=window)
    threads = team_size()
    spans = [
        (row, index, max(0, context_len - window) if window else 0, context_len)
        for index, (row, query_len, context_len) in enumerate(
            zip(batch.query_starts.tolist(), query_lens, context_lens, strict=False)
        )
        if query_len == 1
    ]
    total = sum(stop - start for _, _, start, stop in spans)
    stretch = min(max(-(-total // (threads * _STRETCHES_A_THREAD)), MIN_STRETCH), MAX_STRETCH)
    stretch = min(-(-stretch // block_size) * block_size, MAX_STRETCH)
    items: list[tuple[int, ...]] = []
    joints = 0
    for row, index, start, stop in spans:
        parts, first = -(-(stop - start) // stretch), len(items)
        for part in range(parts):
            begin = start + part * stretch
            items.append((row, index, begin, min(begin + stretch, stop), parts, first, joints))
        joints += parts > 1
    return CompiledPlan(batch, np.array(items, np.int64).reshape(-1, ITEM), joints, threads)


def paged_attention(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, plan: CompiledPlan, softmax_scale: float
) -> torch.Tensor:
    """As reference.paged_attention: q [num_tokens, num_heads, head_dim], float32; returns a new tensor of q's shape.

    q may be a view of a wider tensor as long as the heads of a token stand side by side; the caches are contiguous.
    A plan serves calls of one shape, strides and scale, as the layers of a step are. Raises ValueError for what the
    kernels cannot read.
    """
    if plan.launches is None:
        plan.launches = _launches(q, k_cache, v_cache, plan, softmax_scale)
    out = torch.empty(q.shape, dtype=torch.float32)
    gomp = gomp_parallel()
    for launch in plan.launches:
        _attend(
            gomp,
            launch.body,
            launch.threads,
            launch.args.ctypes.data,
            q.data_ptr(),
            k_cache.data_ptr(),
            v_cache.data_ptr(),
            out.data_ptr(),
        )
    return out


def compile_for(head_dim: int, group: int) -> None:
    """Compiles both kernels for `group` query heads a KV head, or loads them from the cache."""
    decode_body(head_dim, group)
    prefill_body(head_dim, group)


@entry(types.void(*[types.int64] * 8), nogil=True)
def _attend(gomp: int, body: int, threads: int, args: int, q: int, k_cache: int, v_cache: int, out: int) -> None:
    store_i64(load_i64(args, 0), 0, 0)
    store_i64(load_i64(args, 0), 1, 0)
    store_i64(args, 3, q)
    store_i64(args, 5, k_cache)
    store_i64(args, 6, v_cache)
    store_i64(args, 7, out)
    run_team(gomp, body, args, threads)


def _launches(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, plan: CompiledPlan, softmax_scale: float
) -> list[_Launch]:
    _check(q, k_cache, v_cache)
    _, num_kv_heads, block_size, head_dim = k_cache.shape
    group, batch = q.shape[1] // num_kv_heads, plan.batch
    # The kernels compute powers of two; their factor takes the softmax's base along.
    factor = bits_of(softmax_scale * math.log2(math.e))
    tables, stride = batch.block_tables.numpy(), batch.block_tables.shape[1]
    shared = (0, q.stride(0), 0, 0, 0, tables.ctypes.data, stride, num_kv_heads, block_size, factor)
    launches: list[_Launch] = []
    if len(plan.decodes):
        spans = plan.decodes[:, 3] - plan.decodes[:, 2]
        threads = plan.threads if int(spans.sum()) * 8 * num_kv_heads * head_dim >= TEAM_BYTES else 1
        slots = len(plan.decodes) * q.shape[1] * (head_dim + 2) if plan.num_joints else 0
        most_parts = int(plan.decodes[:, 4].max())
        partials, joints = np.empty(slots, np.float32), np.zeros(plan.num_joints, np.int64)
        size = decode_scratch(q.shape[1], head_dim, most_parts)
        scratch = np.empty(threads * size, np.float32)
        own = (partials.ctypes.data, joints.ctypes.data, most_parts, scratch.ctypes.data, 4 * size)
        args = _arguments(0, len(plan.decodes), plan.decodes.ctypes.data, *shared, *own)
        launches.append(_Launch(decode_body(head_dim, group), threads, args, (tables, partials, joints, scratch)))
    tiles = _tiles(batch, group)
    if len(tiles):
        size = prefill_scratch(head_dim, group)
        scratch = np.empty(plan.threads * size, np.float32)
        args = _arguments(0, len(tiles), tiles.ctypes.data, *shared, batch.window, scratch.ctypes.data, 4 * size)
        launches.append(_Launch(prefill_body(head_dim, group), plan.threads, args, (tables, tiles, scratch)))
    return launches


def _arguments(*values: int) -> np.ndarray:
    """int64 arguments of a kernel: the first is the address of two counters, of items and threads, behind the last."""
    args = np.array((*values, 0, 0), np.int64)
    args[0] = args.ctypes.data + 8 * len(values)
    return args


def _check(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor) -> None:
    if q.shape[1] % k_cache.shape[1]:
        raise ValueError(f"{q.shape[1]} query heads are not a multiple of {k_cache.shape[1]} KV heads")
    if q.dtype != torch.float32 or k_cache.dtype != torch.float32 or v_cache.dtype != torch.float32:
        raise ValueError(f"the compiled attention takes float32, not {q.dtype} over {k_cache.dtype}, {v_cache.dtype}")
    if q.stride(2) != 1 or q.stride(1) != q.shape[2]:
        raise ValueError(f"the heads of a token must stand side by side; the strides of q are {q.stride()}")
    if k_cache.shape != v_cache.shape or not (k_cache.is_contiguous() and v_cache.is_contiguous()):
        raise ValueError(
            f"both caches must be contiguous and of one shape, not {tuple(k_cache.shape)}, {tuple(v_cache.shape)}"
        )


def _tiles(batch: PagedBatch, group: int) -> np.ndarray:
    """Query tiles of all prompt chunks, the costly ones (late in a long context) first; int64 [num_tiles, TILE]."""
    starts, contexts = batch.query_starts.tolist(), batch.context_lens.tolist()
    size = tile_queries(group)
    tiles = []
    for index in batch.prefill_requests.tolist():
        row, count = starts[index], starts[index + 1] - starts[index]
        before = contexts[index] - count
        tiles += [(row + i, min(size, count - i), index, before + i) for i in range(0, count, size)]
    tiles.sort(key=lambda tile: -tile[3])
    return np.array(tiles, np.int64).reshape(-1, TILE)
