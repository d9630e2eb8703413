"""The gate of the feed-forward part."""

from __future__ import annotations

import torch


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """silu(x[:, :inner]) * x[:, inner:] for x: [num_tokens, 2 * inner]; returns [num_tokens, inner]."""
    gate, up = x.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate).mul_(up)
