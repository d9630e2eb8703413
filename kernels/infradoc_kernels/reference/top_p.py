"""Which tokens sampling may pick: top-k, then top-p among what is left."""

from __future__ import annotations

import torch


def top_p_mask(probs: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """probs: [num_rows, vocab_size] float32, with those beyond the limits set to zero; not rescaled.

    top_k: [num_rows], 0 is off; top_p: [num_rows], above 0 and at most 1: a token stays if those before it have less
    than top_p of the mass that top-k left. Among equal probabilities the lower token id comes first. The best token
    always stays.
    """
    vocab_size = probs.shape[-1]
    best, ids = probs.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(vocab_size, device=probs.device)
    limit = torch.where(top_k > 0, top_k, vocab_size)
    kept = best.double().masked_fill(rank >= limit[:, None], 0.0)
    before = kept.cumsum(-1) - kept
    share = top_p.double() * kept.sum(-1)
    dropped = (rank >= limit[:, None]) | ((before >= share[:, None]) & (rank > 0))
    return torch.zeros_like(probs).scatter_(1, ids, best.masked_fill(dropped, 0.0))
