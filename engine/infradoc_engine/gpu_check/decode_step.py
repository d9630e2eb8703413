"""Decode attention: bytes of keys and values a second, beside the copy bandwidth."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from infradoc_engine.gpu_check.look import Look, Row
from infradoc_engine.gpu_check.paged_case import Shape, uniform_batch
from infradoc_engine.gpu_check.timing import rotations, time_launches
from infradoc_kernels.paged_attention_decode import paged_attention_decode, plan_decode_splits

GQA, MHA = (32, 8, 128), (32, 32, 128)  # Llama-3-8B, Llama-2-7B
BATCHES = (32, 4, 1, 128, 256, 8)  # what the aims speak of comes first
CONTEXTS = (8192, 2048, 32768, 512, 128)
MOST_BYTES = 24 << 30


def run(look: Look) -> Iterator[Row]:
    """A row for each shape, block size, batch and context that fits the device."""
    for shape, batch, context in _cases(look):
        row = measure(look, shape, batch, context)
        if row is not None:
            yield row


def _cases(look: Look) -> Iterator[tuple[Shape, int, int]]:
    if look.dry:
        yield Shape(4, 2, 16, 4), 2, 32
        return
    batches, contexts = (BATCHES[:3], CONTEXTS[:2]) if look.quick else (BATCHES, CONTEXTS)
    for heads, block_size in ((GQA, 16), (MHA, 16), (GQA, 32), (GQA, 128), (MHA, 128)):
        few = (heads, block_size) not in ((GQA, 16), (MHA, 16))
        for context in contexts[:1] if few else contexts:
            for batch in batches[:2] if few else batches:
                yield Shape(*heads, block_size), batch, context


def measure(look: Look, shape: Shape, batch: int, context: int) -> Row | None:
    """One row, None when the caches would not fit. Keys and values are read cold: launches go around several tables."""
    width = -(-context // shape.block_size)
    item = look.dtype.itemsize
    one = batch * context * shape.token_values * item
    count = 1 if look.dry else rotations(one)
    blocks = count * batch * width
    held = blocks * shape.block_size * shape.token_values * item
    if held > min(MOST_BYTES, look.free_bytes() * 0.8):
        return None
    size = (blocks, shape.kv_heads, shape.block_size, shape.head_dim)
    k, v = (torch.empty(size, dtype=look.dtype, device=look.device).normal_() for _ in range(2))
    tables = torch.randperm(blocks, device=look.device).to(torch.int32).view(count, batch, width)
    q = torch.randn(batch, shape.heads, shape.head_dim, device=look.device).to(look.dtype)
    out = torch.empty_like(q)
    plans = [uniform_batch(table, 1, context, look.device) for table in tables]
    launches = [partial(paged_attention_decode, q, k, v, plan, shape.head_dim**-0.5, out) for plan in plans]
    times = time_launches(launches)
    moved = one + 2 * q.numel() * item
    speed = moved / times["p50_us"] * 1e6
    splits = plan_decode_splits(q, k, plans[0])
    return {
        **shape.row(),
        "batch": batch,
        "context": context,
        "splits": splits.count,
        **times,
        "gigabytes_per_second": speed / 1e9,
        "share_of_copy": look.share_of_copy(speed),
    }
