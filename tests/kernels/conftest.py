"""Naive float64 twins and random paged caches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch


@dataclass
class Paged:
    """A random cache in which only the slots that requests own hold numbers; the rest is NaN."""

    k_cache: torch.Tensor  # [num_blocks, num_kv_heads, block_size, head_dim]
    v_cache: torch.Tensor
    block_tables: list[list[int]]
    keys: list[torch.Tensor]  # per request [context_len, num_kv_heads, head_dim]
    values: list[torch.Tensor]


@pytest.fixture
def make_paged() -> Callable[..., Paged]:
    def make(context_lens: Sequence[int], num_kv_heads: int, head_dim: int, block_size: int, seed: int = 0) -> Paged:
        generator = torch.Generator().manual_seed(seed)
        counts = [math.ceil(n / block_size) for n in context_lens]
        num_blocks = sum(counts) + 3
        ids = torch.randperm(num_blocks, generator=generator).tolist()
        shape = (num_blocks, num_kv_heads, block_size, head_dim)
        paged = Paged(torch.full(shape, torch.nan), torch.full(shape, torch.nan), [], [], [])
        for context_len, count in zip(context_lens, counts, strict=True):
            table, ids = ids[:count], ids[count:]
            k, v = (torch.randn(context_len, num_kv_heads, head_dim, generator=generator) for _ in range(2))
            for position in range(context_len):
                block, offset = table[position // block_size], position % block_size
                paged.k_cache[block, :, offset] = k[position]
                paged.v_cache[block, :, offset] = v[position]
            paged.block_tables.append(table)
            paged.keys.append(k)
            paged.values.append(v)
        return paged

    return make


def _naive_attention(q: torch.Tensor, paged: Paged, query_lens: Sequence[int], scale: float) -> torch.Tensor:
    """Row by row, head by head, in float64."""
    out, row = torch.empty(q.shape, dtype=torch.float64), 0
    group = q.shape[1] // paged.k_cache.shape[1]
    for query_len, keys, values in zip(query_lens, paged.keys, paged.values, strict=True):
        for i in range(query_len):
            seen = keys.shape[0] - query_len + i + 1
            for head in range(q.shape[1]):
                k, v = keys[:seen, head // group].double(), values[:seen, head // group].double()
                out[row, head] = torch.softmax(k @ q[row, head].double() * scale, 0) @ v
            row += 1
    return out


@pytest.fixture
def naive_attention() -> Callable[..., torch.Tensor]:
    return _naive_attention
