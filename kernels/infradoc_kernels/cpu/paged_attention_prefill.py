"""Attention of prompt chunks over their paged blocks, tile by tile.

A work item is a tile of queries of one request for one KV head. It walks over the keys in chunks: the keys are laid
out once with tokens side by side, and serve all queries of the tile; the softmax runs along.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from infradoc_kernels.cpu.compile import body, part
from infradoc_kernels.cpu.intrinsics import (
    LANES,
    exp2_f32,
    fetch_add,
    float_of_bits,
    load_f32,
    load_i32,
    load_i64,
    multiply,
    multiply_add,
    row_exp2,
    row_max,
    store_f32,
)

# A work item in int64: first row in q, queries, row of the block tables, position of the first query.
TILE = 4
TILE_ROWS = 96  # queries times their heads: what one tile keeps (scores, mixes) stays in the second-level cache
CHUNK = 64  # keys at a time
BLOCK_ROWS = 8 if LANES == 16 else 4  # rows at a time; times two registers of columns: as many sums as registers hold
_MINUS_INFINITY, _ZERO, _ONE = np.float32(-np.inf), np.float32(0), np.float32(1)


def tile_queries(group: int) -> int:
    """Queries of a tile."""
    return max(1, TILE_ROWS // group)


def _most_rows(group: int) -> int:
    return -(-tile_queries(group) * group // BLOCK_ROWS) * BLOCK_ROWS


def prefill_scratch(head_dim: int, group: int) -> int:
    """float32 numbers that a thread needs: queries, mixes, scores, states of the rows, and a chunk of keys."""
    return (2 * head_dim + CHUNK + 2) * _most_rows(group) + CHUNK * head_dim


@functools.cache
def prefill_body(head_dim: int, group: int) -> int:
    """Address of the kernel for `group` query heads a KV head; its arguments are set in paged_attention._launches."""
    block_rows, token_width = BLOCK_ROWS, 2 * LANES
    width = next(w for w in (32, 16, 8, 4, 2, 1) if w <= token_width and head_dim % w == 0)
    most_rows = _most_rows(group)
    vectors = CHUNK // LANES

    @part
    def lay_out(cache: int, table: int, first: int, count: int, head: int, heads: int, size: int, keys: int) -> None:
        """Keys of tokens first, first + 1, ... as [head_dim, CHUNK]."""
        for t in range(count):
            token = first + t
            block = np.int64(load_i32(table, token // size))
            source = cache + ((block * heads + head) * size + token % size) * head_dim * 4
            for d in range(head_dim):
                store_f32(keys, d * CHUNK + t, load_f32(source, d))

    @part
    def softmax(
        scores: int, rows: int, first: int, position: int, window: int, count: int, c: float, state: int, mixes: int
    ) -> None:
        """Scores of a chunk to weights; maximum and sum of each row in `state`, earlier mixes scaled to the new one."""
        for r in range(rows):
            own = position + r // group
            stop = min(count, own - first + 1)
            start = max(0, own - window + 1 - first) if window else 0
            row = scores + r * CHUNK * 4
            for t in range(min(start, CHUNK)):
                store_f32(row, t, _MINUS_INFINITY)
            for t in range(max(stop, 0), CHUNK):
                store_f32(row, t, _MINUS_INFINITY)
            before = load_f32(state, 2 * r)
            most = max(before, row_max(row, vectors))
            if most == _MINUS_INFINITY:  # nothing to see yet for this query
                for t in range(CHUNK):
                    store_f32(row, t, _ZERO)
                continue
            total = row_exp2(row, vectors, most, c)
            if most > before:
                scale = exp2_f32((before - most) * c)
                for d in range(head_dim):
                    store_f32(mixes, r * head_dim + d, load_f32(mixes, r * head_dim + d) * scale)
                total += load_f32(state, 2 * r + 1) * scale
                store_f32(state, 2 * r, most)
            else:
                total += load_f32(state, 2 * r + 1)
            store_f32(state, 2 * r + 1, total)

    @part
    def mix(
        cache: int,
        table: int,
        first: int,
        count: int,
        head: int,
        heads: int,
        size: int,
        padded: int,
        scores: int,
        mixes: int,
    ) -> None:
        token = first
        while token < first + count:
            offset = token % size
            run = min(size - offset, first + count - token)
            block = np.int64(load_i32(table, token // size))
            values = cache + ((block * heads + head) * size + offset) * head_dim * 4
            for r in range(0, padded, block_rows):
                weights = scores + (r * CHUNK + token - first) * 4
                for d in range(0, head_dim, width):
                    target = mixes + (r * head_dim + d) * 4
                    multiply_add(block_rows, width, weights, CHUNK, values + d * 4, head_dim, target, head_dim, run)
            token += run

    @body(head_dim, group)
    def prefill(args: Any) -> None:
        counter, num_tiles, tiles, q, q_stride = args[0], args[1], args[2], args[3], args[4]
        k_cache, v_cache, out, tables, table_stride = args[5], args[6], args[7], args[8], args[9]
        num_kv_heads, block_size, factor, window = args[10], args[11], float_of_bits(np.int32(args[12])), args[13]
        queries = args[14] + fetch_add(counter + 8) * args[15]  # a part of the scratch for each thread
        mixes = queries + most_rows * head_dim * 4
        scores = mixes + most_rows * head_dim * 4
        state = scores + most_rows * CHUNK * 4
        keys = state + most_rows * 8
        for i in range(most_rows * head_dim):
            store_f32(queries, i, _ZERO)  # rows that pad a tile count, but nobody reads what they give
        while True:
            number = fetch_add(counter)
            if number >= num_tiles * num_kv_heads:
                return
            tile, head = tiles + number // num_kv_heads * TILE * 8, number % num_kv_heads
            row, count, position = load_i64(tile, 0), load_i64(tile, 1), load_i64(tile, 3)
            table = tables + load_i64(tile, 2) * table_stride * 4
            rows = count * group
            padded = (rows + block_rows - 1) // block_rows * block_rows
            for i in range(count):
                source = q + ((row + i) * q_stride + head * group * head_dim) * 4
                for d in range(group * head_dim):
                    store_f32(queries, i * group * head_dim + d, load_f32(source, d))
            for i in range(padded * head_dim):
                store_f32(mixes, i, _ZERO)
            for r in range(rows):
                store_f32(state, 2 * r, _MINUS_INFINITY)
                store_f32(state, 2 * r + 1, _ZERO)
            first = max(0, position - window + 1) if window else 0
            while first < position + count:
                seen = min(CHUNK, position + count - first)
                lay_out(k_cache, table, first, seen, head, num_kv_heads, block_size, keys)
                for r in range(0, padded, block_rows):
                    for t in range(0, CHUNK, token_width):
                        target = scores + (r * CHUNK + t) * 4
                        left = queries + r * head_dim * 4
                        multiply(block_rows, token_width, left, head_dim, keys + t * 4, CHUNK, target, CHUNK, head_dim)
                softmax(scores, rows, first, position, window, seen, factor, state, mixes)
                mix(v_cache, table, first, seen, head, num_kv_heads, block_size, padded, scores, mixes)
                first += seen
            for r in range(rows):
                target = out + (((row + r // group) * num_kv_heads + head) * group + r % group) * head_dim * 4
                scale = _ONE / load_f32(state, 2 * r + 1)
                for d in range(head_dim):
                    store_f32(target, d, load_f32(mixes, r * head_dim + d) * scale)

    return prefill
