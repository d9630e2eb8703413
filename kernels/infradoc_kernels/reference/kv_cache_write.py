"""Puts new keys or values into the paged cache."""

from __future__ import annotations

import torch


def cache_rows(slots: torch.Tensor, num_kv_heads: int, block_size: int) -> torch.Tensor:
    """Row numbers of [num_blocks * num_kv_heads * block_size, head_dim] for slots; int64, [num_tokens * num_kv_heads].

    A slot is block id * block_size + offset. int64 throughout: block id times stride passes 2^31 in large pools.
    """
    slots = slots.to(torch.int64)
    block, offset = slots // block_size, slots % block_size
    heads = torch.arange(num_kv_heads, device=slots.device)
    return ((block[:, None] * num_kv_heads + heads) * block_size + offset[:, None]).reshape(-1)


def kv_cache_write(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor,
    rows: torch.Tensor | None = None,
) -> None:
    """Writes k, v: [num_tokens, num_kv_heads, head_dim] at slots: [num_tokens], in place.

    The caches are [num_blocks, num_kv_heads, block_size, head_dim], contiguous. `rows` is `cache_rows(slots, ...)`
    when the caller has it already (it is the same for all layers).
    """
    _, num_kv_heads, block_size, head_dim = k_cache.shape
    if rows is None:
        rows = cache_rows(slots, num_kv_heads, block_size)
    k_cache.view(-1, head_dim).index_copy_(0, rows, k.reshape(-1, head_dim))
    v_cache.view(-1, head_dim).index_copy_(0, rows, v.reshape(-1, head_dim))
