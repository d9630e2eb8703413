"""Paged attention, decode and prefill. usage: python -m bench.bench_paged_attention [--out bench/results/....json]

Decode is bound by reading keys and values: compare their gigabytes_per_second with that of the copy.
Prefill is bound by arithmetic: its rows carry the operations of the causal half, for teraflops.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial

import torch

from bench.common import Case, bench

BLOCK_SIZE = 16
SCALE = 0.088
# Query heads, KV heads, head_dim: Llama-3-8B, one of four ranks of Llama-3-70B, Llama-2-7B, SmolLM2-135M
MODELS = {"llama3-8b": (32, 8, 128), "llama3-70b-tp4": (16, 2, 128), "llama2-7b": (32, 32, 128), "smollm2": (9, 3, 64)}
DECODES = ((1, 8192), (8, 8192), (32, 2048), (32, 8192), (64, 8192), (8, 65536), (256, 1024))
PREFILLS = ((1, 2048, 2048), (1, 8192, 8192), (4, 512, 8192), (8, 2048, 2048))  # requests, queries, context


def caches(blocks: int, kv_heads: int, head_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two caches of random bfloat16: zeros would be kind to the power budget."""
    shape = (blocks, kv_heads, BLOCK_SIZE, head_dim)
    k, v = (torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_() for _ in range(2))
    return k, v


def shuffled_tables(requests: int, blocks: int) -> list[list[int]]:
    """Block tables in random order, as a pool looks after a while of serving."""
    return torch.randperm(requests * blocks).view(requests, blocks).tolist()  # type: ignore[no-any-return]


def copy_case() -> Case:
    """The ceiling: a large copy, bytes read and written."""
    source = torch.empty(2 << 30, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    return Case({"what": "copy"}, "int8", "copy", lambda: target.copy_(source), 2 * source.nbytes)


def decode_cases() -> Iterator[Case]:
    """One query a request over contexts of equal length, then of lengths from 1/16 to the whole."""
    from infradoc_kernels.paged_attention_decode import paged_attention_decode
    from infradoc_kernels.paged_batch import plan_paged_batch

    for model, (heads, kv_heads, head_dim) in MODELS.items():
        for requests, context in DECODES:
            if requests * context * kv_heads * head_dim * 4 > 40 << 30:
                continue
            k, v = caches(requests * -(-context // BLOCK_SIZE), kv_heads, head_dim)
            tables = shuffled_tables(requests, -(-context // BLOCK_SIZE))
            q = torch.randn(requests, heads, head_dim, device="cuda").bfloat16()
            out = torch.empty_like(q)
            for lengths in ("equal", "uneven"):
                lens = [context if lengths == "equal" else context * (1 + i % 16) // 16 for i in range(requests)]
                batch = plan_paged_batch(tables, [1] * requests, lens, block_size=BLOCK_SIZE, device="cuda")
                moved = sum(lens) * kv_heads * head_dim * 4 + 2 * q.nbytes
                shape = {"what": "decode", "model": model, "requests": requests, "context": context, "lens": lengths}
                yield Case(
                    shape, "bfloat16", "triton", partial(paged_attention_decode, q, k, v, batch, SCALE, out), moved
                )


def prefill_cases() -> Iterator[Case]:
    """Chunks at the end of their context."""
    from infradoc_kernels.paged_attention_prefill import paged_attention_prefill
    from infradoc_kernels.paged_batch import plan_paged_batch

    for model, (heads, kv_heads, head_dim) in MODELS.items():
        for requests, queries, context in PREFILLS:
            k, v = caches(requests * -(-context // BLOCK_SIZE), kv_heads, head_dim)
            tables = shuffled_tables(requests, -(-context // BLOCK_SIZE))
            batch = plan_paged_batch(
                tables, [queries] * requests, [context] * requests, block_size=BLOCK_SIZE, device="cuda"
            )
            q = torch.randn(requests * queries, heads, head_dim, device="cuda").bfloat16()
            out = torch.empty_like(q)
            seen = requests * (queries * (context - queries) + queries * (queries + 1) // 2)
            shape = {"what": "prefill", "model": model, "requests": requests, "queries": queries, "context": context}
            shape["operations"] = 4 * seen * heads * head_dim
            moved = requests * context * kv_heads * head_dim * 4 + 2 * q.nbytes
            yield Case(shape, "bfloat16", "triton", partial(paged_attention_prefill, q, k, v, batch, SCALE, out), moved)


def cases() -> Iterator[Case]:
    """The copy first, so that every run carries its own ceiling."""
    yield copy_case()
    yield from decode_cases()
    yield from prefill_cases()


if __name__ == "__main__":
    sys.exit(bench("paged_attention", cases))
