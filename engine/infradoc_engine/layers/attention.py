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
    cache_rows: torch.Tensor  # ops.cache_rows of the slots
    plan: ops.AttentionPlan


class Attention:
    """Grouped-query attention with rotary positions; q, k and v come from one matmul."""

    def __init__(self, qkv: Linear, out: Linear, num_heads: int, num_kv_heads: int, head_dim: int) -> None:
        self.qkv, self.out = qkv, out
        self._num_heads, self._num_kv_heads, self._head_dim = num_heads, num_kv_heads, head_dim
        self._scale = head_dim**-0.5

    def __call__(self, x: torch.Tensor, step: AttentionStep, cache: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """x: [num_tokens, hidden] -> the same shape; writes the tokens' keys and values into the cache."""
        heads = self.qkv(x).view(x.shape[0], -1, self._head_dim)
        turning = self._num_heads + self._num_kv_heads  # queries and keys stand side by side: one turn for both
        turned = ops.rope(heads[:, :turning], step.cos, step.sin)
        k, v = turned[:, self._num_heads :], heads[:, turning:]
        ops.kv_cache_write(k, v, cache[0], cache[1], step.slots, step.cache_rows)
        mixed = ops.paged_attention(turned[:, : self._num_heads], cache[0], cache[1], step.plan, self._scale)
        return self.out(mixed.view(x.shape[0], -1))
