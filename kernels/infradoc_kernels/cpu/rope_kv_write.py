"""Rotary positions on the output of the fused projection, and the new keys and values into the cache, in one look."""

from __future__ import annotations

from typing import Any

import torch
from numba import types

from infradoc_kernels.cpu.compile import TEAM_VALUES, body, entry, gomp_parallel, part, team_size
from infradoc_kernels.cpu.intrinsics import fetch_add, load_f32, load_i64, run_team_on, store_f32

_ROWS = 8  # of a work item


@part
def _turn(source: int, target: int, cos: int, sin: int, half: int) -> None:
    for i in range(half):
        a, b = load_f32(source, i), load_f32(source, half + i)
        store_f32(target, i, a * load_f32(cos, i) + b * load_f32(sin, i))
        store_f32(target, half + i, b * load_f32(cos, half + i) + a * load_f32(sin, half + i))


@part
def _write(
    first: int,
    last: int,
    heads: int,
    cos: int,
    sin: int,
    k_cache: int,
    v_cache: int,
    slots: int,
    num_heads: int,
    num_kv_heads: int,
    block_size: int,
    head_dim: int,
) -> None:
    size, half = head_dim * 4, head_dim // 2
    for row in range(first, last):
        source, angle = heads + row * (num_heads + 2 * num_kv_heads) * size, row * size
        for _ in range(num_heads):
            _turn(source, source, cos + angle, sin + angle, half)
            source += size
        slot = load_i64(slots, row)
        place = (slot // block_size * num_kv_heads * block_size + slot % block_size) * size
        for head in range(num_kv_heads):
            target = place + head * block_size * size
            _turn(source, k_cache + target, cos + angle, sin + angle, half)
            for i in range(head_dim):
                store_f32(v_cache + target, i, load_f32(source + num_kv_heads * size, i))
            source += size


@body()
def _team(args: Any) -> None:
    rows = args[1]
    while True:
        first = fetch_add(args[0]) * _ROWS
        if first >= rows:
            return
        _write(
            first,
            min(first + _ROWS, rows),
            args[2],
            args[3],
            args[4],
            args[5],
            args[6],
            args[7],
            args[8],
            args[9],
            args[10],
            args[11],
        )


@entry(types.void(*[types.int64] * 14), nogil=False)
def _run(
    gomp: int,
    team_body: int,
    threads: int,
    rows: int,
    heads: int,
    cos: int,
    sin: int,
    k_cache: int,
    v_cache: int,
    slots: int,
    num_heads: int,
    num_kv_heads: int,
    block_size: int,
    head_dim: int,
) -> None:
    if threads == 1:
        _write(0, rows, heads, cos, sin, k_cache, v_cache, slots, num_heads, num_kv_heads, block_size, head_dim)
        return
    run_team_on(
        gomp,
        team_body,
        threads,
        (rows, heads, cos, sin, k_cache, v_cache, slots, num_heads, num_kv_heads, block_size, head_dim),
    )


def rope_kv_write(
    heads: torch.Tensor,
    num_heads: int,
    cos: torch.Tensor,
    sin: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor,
) -> torch.Tensor:
    """As ops.rope_kv_write, for float32. Turns the queries where they are, in `heads`.

    Raises ValueError for shapes that do not fit and caches that are not contiguous.
    """
    rows, count, head_dim = heads.shape
    num_kv_heads, block_size = k_cache.shape[1:3]
    angles = (rows, head_dim)
    if count != num_heads + 2 * num_kv_heads or cos.shape != angles or sin.shape != angles or slots.shape != (rows,):
        raise ValueError(
            f"{num_heads} query and {num_kv_heads} KV heads, but heads {tuple(heads.shape)}, angles "
            f"{tuple(cos.shape)}, {tuple(sin.shape)}, slots {tuple(slots.shape)}"
        )
    if k_cache.shape != v_cache.shape or not (k_cache.is_contiguous() and v_cache.is_contiguous()):
        raise ValueError(
            f"both caches must be contiguous and of one shape, not {tuple(k_cache.shape)}, {tuple(v_cache.shape)}"
        )
    heads, cos, sin, slots = heads.contiguous(), cos.contiguous(), sin.contiguous(), slots.long().contiguous()
    threads = team_size() if heads.numel() >= TEAM_VALUES else 1
    _run(
        gomp_parallel(),
        _team,
        threads,
        rows,
        heads.data_ptr(),
        cos.data_ptr(),
        sin.data_ptr(),
        k_cache.data_ptr(),
        v_cache.data_ptr(),
        slots.data_ptr(),
        num_heads,
        num_kv_heads,
        block_size,
        head_dim,
    )
    return heads[:, :num_heads]
