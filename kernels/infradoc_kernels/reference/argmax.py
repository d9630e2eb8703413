"""The best token of each row of logits."""

from __future__ import annotations

import torch


def argmax(x: torch.Tensor) -> torch.Tensor:
    """Index of the largest number of each row of x: [num_rows, vocab_size]; int64 [num_rows]."""
    return x.argmax(dim=-1)
