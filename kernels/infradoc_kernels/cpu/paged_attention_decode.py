"""Attention of one query a request over its paged blocks, read in place.

A work item is one stretch of one request's context, all heads. Long contexts are split so that all threads find work
to the end; whoever finishes the last stretch of a request joins them (softmax by parts: maximum, sum, mix).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from infradoc_kernels.cpu.compile import body, part
from infradoc_kernels.cpu.intrinsics import (
    LANES,
    dots,
    exp2_f32,
    fetch_add,
    float_of_bits,
    load_f32,
    load_i32,
    load_i64,
    multiply,
    multiply_add_ahead,
    row_exp2,
    row_max,
    store_f32,
    store_i64,
)

# A work item in int64: row in q, row of the block tables, first token, past the last, number of stretches of its
# request, the first of these in the list, and the joint (a counter) where they meet.
ITEM = 7
MAX_STRETCH = 256  # tokens; the scores of a stretch stay in the first-level cache
AHEAD = 2
_MINUS_INFINITY, _ZERO, _ONE = np.float32(-np.inf), np.float32(0), np.float32(1)


def decode_scratch(num_heads: int, head_dim: int, most_parts: int) -> int:
    """float32 numbers that a thread needs: scores, sums, and the weights of the stretches that it joins.

    It is allocated outside: a kernel cannot say that memory was refused.
    """
    return num_heads * (MAX_STRETCH + LANES + head_dim + 2) + most_parts


@functools.cache
def decode_body(head_dim: int, group: int) -> int:
    """Address of the kernel for `group` query heads a KV head; its arguments are set in paged_attention._launches."""
    rows = max(r for r in range(1, 9) if group % r == 0)  # query heads that share one look at a key
    fits = 24 * LANES // rows  # sums that stay in registers
    width = next(w for w in (64, 32, 16, 8, 4, 2, 1) if head_dim % w == 0 and (w <= fits or w == 1))
    partial = head_dim + 2  # the mix of a stretch, its maximum, its sum
    stride = MAX_STRETCH + LANES
    row_bytes = 4 * head_dim

    @part
    def tile_of(cache: int, table: int, index: int, head: int, num_kv_heads: int, tile_bytes: int) -> Any:
        """Address of a KV head's part of block table[index]. int64: pools pass 2^31 values."""
        return cache + (np.int64(load_i32(table, index)) * num_kv_heads + head) * tile_bytes

    @part
    def ahead_of(
        cache: int, other: int, table: int, index: int, first: int, last: int, head: int, num_kv_heads: int, size: int
    ) -> Any:
        """The tile that is AHEAD tiles further in memory order, or in `other` when the stretch ends before it."""
        head += AHEAD
        while head >= num_kv_heads:
            head, index = head - num_kv_heads, index + 1
        if index > last:
            cache, index = other, min(first + index - last - 1, last)
        return tile_of(cache, table, index, head, num_kv_heads, size)

    @part
    def stretch(
        query: int,
        k_cache: int,
        v_cache: int,
        table: int,
        start: int,
        stop: int,
        num_kv_heads: int,
        block_size: int,
        factor: float,
        scores: int,
        sums: int,
    ) -> None:
        """Mix, maximum and sum of all query heads over tokens [start, stop) into `sums`: [num_heads, partial].

        Blocks outside, heads inside: a block's heads lie side by side, and memory is faster in longer runs.
        """
        # Whole blocks but for the ends; no division per block, it would cost as much as the block's products.
        size, count = block_size * row_bytes, stop - start
        first, skip, last = start // block_size, start % block_size, (stop - 1) // block_size
        index, offset, done = first, skip, 0
        while index <= last:
            run = min(block_size - offset, count - done)
            for head in range(num_kv_heads):
                near = ahead_of(k_cache, v_cache, table, index, first, last, head, num_kv_heads, size)
                keys = tile_of(k_cache, table, index, head, num_kv_heads, size) + offset * row_bytes
                for sub in range(head * group, (head + 1) * group, rows):
                    out = scores + (sub * stride + done) * 4
                    dots(rows, head_dim, query + sub * row_bytes, head_dim, keys, head_dim, out, stride, run, near)
            index, offset, done = index + 1, 0, done + run
        vectors = (count + LANES - 1) // LANES
        for h in range(num_kv_heads * group):
            at, total = scores + h * stride * 4, sums + h * partial * 4
            for i in range(count, vectors * LANES):
                store_f32(at, i, _MINUS_INFINITY)
            most = row_max(at, vectors)
            for d in range(head_dim):
                store_f32(total, d, _ZERO)
            store_f32(total, head_dim, most)
            store_f32(total, head_dim + 1, row_exp2(at, vectors, most, factor))
        index, offset, done = first, skip, 0
        while index <= last:
            run = min(block_size - offset, count - done)
            for head in range(num_kv_heads):
                near = ahead_of(v_cache, v_cache, table, index, first, last, head, num_kv_heads, size)
                values = tile_of(v_cache, table, index, head, num_kv_heads, size) + offset * row_bytes
                for sub in range(head * group, (head + 1) * group, rows):
                    weights, mixes = scores + (sub * stride + done) * 4, sums + sub * partial * 4
                    for d in range(0, head_dim, width):
                        multiply_add_ahead(
                            rows,
                            width,
                            weights,
                            stride,
                            values + d * 4,
                            head_dim,
                            mixes + d * 4,
                            partial,
                            run,
                            near + d * run * 4,
                        )
            index, offset, done = index + 1, 0, done + run

    @part
    def join(first: int, parts: int, step: int, factor: float, weights: int, target: int) -> None:
        """One query head from its stretches, `step` numbers apart from `first` on, into target: [head_dim]."""
        most = _MINUS_INFINITY
        for p in range(parts):
            most = max(most, load_f32(first, p * step + head_dim))
        total = _ZERO
        for p in range(parts):
            weight = exp2_f32((load_f32(first, p * step + head_dim) - most) * factor)
            store_f32(weights, p, weight)
            total += weight * load_f32(first, p * step + head_dim + 1)
        scale = _ONE / total
        for p in range(parts):
            store_f32(weights, p, load_f32(weights, p) * scale)
        for d in range(0, head_dim, width):
            multiply(1, width, weights, 0, first + d * 4, step, target + d * 4, 0, parts)

    @body(head_dim, group)
    def decode(args: Any) -> None:
        counter, num_items, items, q, q_stride = args[0], args[1], args[2], args[3], args[4]
        k_cache, v_cache, out, tables, table_stride = args[5], args[6], args[7], args[8], args[9]
        num_kv_heads, block_size, factor = args[10], args[11], float_of_bits(np.int32(args[12]))
        partials, joints = args[13], args[14]
        num_heads = num_kv_heads * group
        scores = args[16] + fetch_add(counter + 8) * args[17]  # a part of the scratch for each thread
        sums = scores + num_heads * stride * 4
        weights = sums + num_heads * partial * 4
        while True:
            number = fetch_add(counter)
            if number >= num_items:
                return
            item = items + number * ITEM * 8
            row, table = load_i64(item, 0), tables + load_i64(item, 1) * table_stride * 4
            start, stop, parts = load_i64(item, 2), load_i64(item, 3), load_i64(item, 4)
            query, target = q + row * q_stride * 4, out + row * num_heads * row_bytes
            stretch(query, k_cache, v_cache, table, start, stop, num_kv_heads, block_size, factor, scores, sums)
            if parts == 1:
                for h in range(num_heads):
                    join(sums + h * partial * 4, 1, 0, factor, scores, target + h * row_bytes)
                continue
            place = partials + number * num_heads * partial * 4
            for i in range(num_heads * partial):
                store_f32(place, i, load_f32(sums, i))
            joint = joints + load_i64(item, 6) * 8
            if fetch_add(joint) == parts - 1:
                store_i64(joint, 0, 0)  # for the next layer
                first = partials + load_i64(item, 5) * num_heads * partial * 4
                for h in range(num_heads):
                    at = first + h * partial * 4
                    join(at, parts, num_heads * partial, factor, weights, target + h * row_bytes)

    return decode
