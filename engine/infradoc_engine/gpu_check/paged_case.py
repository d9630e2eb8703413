"""Random paged caches with the plan of a step over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from infradoc_engine.gpu_check import float64
from infradoc_kernels.paged_batch import PagedBatch, plan_paged_batch


@dataclass(frozen=True, slots=True)
class Shape:
    """Heads and cache of one attention layer."""

    heads: int
    kv_heads: int
    head_dim: int
    block_size: int

    @property
    def token_values(self) -> int:
        """Keys and values of a token."""
        return 2 * self.kv_heads * self.head_dim

    def row(self) -> dict[str, int]:
        return {
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "block_size": self.block_size,
        }


@dataclass(slots=True)
class Case:
    """A step and its right answer, [tokens, heads, dim] float64."""

    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    batch: PagedBatch
    scale: float
    expected: torch.Tensor


def paged_case(
    shape: Shape,
    query_lens: Sequence[int],
    context_lens: Sequence[int],
    dtype: torch.dtype,
    device: torch.device,
    *,
    window: int = 0,
    num_blocks: int | None = None,
    padding: int = 2,
) -> Case:
    """Slots that belong to nobody hold NaN; tables are shuffled and use the pool's last blocks; some places unused."""
    counts = [-(-n // shape.block_size) for n in context_lens]
    total = num_blocks or sum(counts) + 2
    ids = (torch.randperm(sum(counts)) + total - sum(counts)).tolist()
    size = (total, shape.kv_heads, shape.block_size, shape.head_dim)
    k_cache, v_cache = (torch.empty(size, dtype=dtype, device=device) for _ in range(2))
    if num_blocks is None:
        k_cache.fill_(torch.nan)
        v_cache.fill_(torch.nan)
    q = torch.randn(sum(query_lens), shape.heads + 3, shape.head_dim, device=device).to(dtype)[:, : shape.heads]
    scale, tables, parts, row = shape.head_dim**-0.5, [], [], 0
    for queries, context, count in zip(query_lens, context_lens, counts, strict=True):
        table, ids = ids[:count], ids[count:]
        k, v = (torch.randn(context, shape.kv_heads, shape.head_dim, device=device).to(dtype) for _ in range(2))
        blocks = torch.tensor(table, device=device)
        k_cache[blocks] = torch.nan
        v_cache[blocks] = torch.nan
        at = torch.arange(context, device=device)
        k_cache[blocks[at // shape.block_size], :, at % shape.block_size] = k
        v_cache[blocks[at // shape.block_size], :, at % shape.block_size] = v
        parts.append(float64.attention(q[row : row + queries], k, v, scale, context, window))
        tables.append(table)
        row += queries
    batch = plan_paged_batch(
        tables, query_lens, context_lens, block_size=shape.block_size, device=device, window=window
    )
    unused = torch.full((padding,), -1, dtype=torch.int32, device=device)
    batch.decode_requests = torch.cat([batch.decode_requests, unused])
    batch.prefill_requests = torch.cat([batch.prefill_requests, unused])
    return Case(q, k_cache, v_cache, batch, scale, torch.cat(parts))


def uniform_batch(
    tables: torch.Tensor, query_len: int, context_len: int, device: torch.device, *, window: int = 0
) -> PagedBatch:
    """All requests alike; built on the device, since block tables of long contexts are slow as lists.

    tables: int32 [num_requests, max_blocks].
    """
    count = tables.shape[0]
    every = torch.arange(count, dtype=torch.int32, device=device)
    none = every[:0]
    decode = query_len == 1
    return PagedBatch(
        block_tables=tables,
        query_starts=torch.arange(count + 1, dtype=torch.int32, device=device) * query_len,
        context_lens=torch.full((count,), context_len, dtype=torch.int32, device=device),
        decode_requests=every if decode else none,
        prefill_requests=none if decode else every,
        max_query_len=query_len,
        max_context_len=context_len,
        window=window,
        max_decode_len=context_len if decode else 0,
        decode_tokens=count * context_len if decode else 0,
    )
