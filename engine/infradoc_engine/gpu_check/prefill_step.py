"""Prefill attention: operations of the causal half a second."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from infradoc_engine.gpu_check.look import Look, Row
from infradoc_engine.gpu_check.paged_case import Shape, uniform_batch
from infradoc_engine.gpu_check.timing import time_launches
from infradoc_kernels.paged_attention_prefill import paged_attention_prefill

SHAPES = (Shape(32, 8, 128, 16), Shape(32, 32, 128, 16), Shape(9, 3, 64, 16), Shape(32, 8, 128, 128))
CHUNKS = (
    (1, 2048, 2048),
    (1, 8192, 8192),
    (4, 512, 8192),
    (8, 2048, 2048),
    (16, 128, 1024),
)  # requests, queries, context


def run(look: Look) -> Iterator[Row]:
    """A row for each shape and chunk."""
    shapes = (Shape(4, 2, 16, 4),) if look.dry else SHAPES[:2] if look.quick else SHAPES
    for shape in shapes:
        for requests, queries, context in ((2, 3, 9),) if look.dry else CHUNKS[:2] if look.quick else CHUNKS:
            yield _measure(look, shape, requests, queries, context)


def _measure(look: Look, shape: Shape, requests: int, queries: int, context: int) -> Row:
    width = -(-context // shape.block_size)
    size = (requests * width, shape.kv_heads, shape.block_size, shape.head_dim)
    k, v = (torch.empty(size, dtype=look.dtype, device=look.device).normal_() for _ in range(2))
    tables = torch.randperm(requests * width, device=look.device).to(torch.int32).view(requests, width)
    q = torch.randn(requests * queries, shape.heads, shape.head_dim, device=look.device).to(look.dtype)
    batch = uniform_batch(tables, queries, context, look.device)
    launch = partial(paged_attention_prefill, q, k, v, batch, shape.head_dim**-0.5, torch.empty_like(q))
    times = time_launches([launch])
    seen = requests * (queries * (context - queries) + queries * (queries + 1) // 2)
    operations = 4 * seen * shape.heads * shape.head_dim
    return {
        **shape.row(),
        "requests": requests,
        "queries": queries,
        "context": context,
        **times,
        "teraflops": operations / times["p50_us"] / 1e6,
    }
