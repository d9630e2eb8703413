"""Self-attention over the paged cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from infradoc_engine.layers.linear import Linear
from infradoc_kernels import ops


@dataclass(slots=True)
class AttentionStep:
    """What a step's attention needs beside the hidden states; the same in all layers."""

    cos: torch.Tensor  # [num_tokens, head_dim] float32, rows of ops.rope_angles at the tokens' positions
    sin: torch.Tensor
    slots: torch.Tensor  # int64 [num_tokens], where the new keys and values go
    cache_rows: torch.Tensor | None  # ops.cache_rows of the slots, where the reference runs
    plan: ops.Plan


class Attention:
    """Grouped-query attention with rotary positions; q, k and v come from one matmul."""

    def __init__(self, qkv: Linear, out: Linear, num_heads: int, head_dim: int) -> None:
        self.qkv, self.out = qkv, out
        self._num_heads, self._head_dim = num_heads, head_dim
        self._scale = head_dim**-0.5

    def __call__(self, x: torch.Tensor, step: AttentionStep, cache: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """x: [num_tokens, hidden] -> the same shape; writes the tokens' keys and values into the cache."""
        heads = self.qkv(x).view(x.shape[0], -1, self._head_dim)
        q = ops.rope_kv_write(
            heads, self._num_heads, step.cos, step.sin, cache[0], cache[1], step.slots, step.cache_rows
        )
        mixed = ops.paged_attention(q, cache[0], cache[1], step.plan, self._scale)
        return self.out(mixed.view(x.shape[0], -1))
