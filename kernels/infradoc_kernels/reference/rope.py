"""Rotary positions: each pair (i, i + head_dim/2) of a head turns by its token's angle."""

from __future__ import annotations

import torch


def rope_angles(head_dim: int, theta: float, max_positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines, each [max_positions, head_dim] float32, laid out for `rope`.

    Both halves of a head share their angle; the sine of the first half carries the minus sign of the rotation, so
    that one multiply-add does the turn.
    """
    inverse = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = torch.outer(torch.arange(max_positions, dtype=torch.float32), inverse)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turns x: [num_tokens, num_heads, head_dim] by cos, sin: [num_tokens, head_dim] (rows of `rope_angles`).

    Computed in float32, returned in x's dtype; x is not changed.
    """
    wide = x.float()
    swapped = wide.roll(x.shape[-1] // 2, dims=-1)
    return (wide * cos[:, None]).addcmul_(swapped, sin[:, None]).to(x.dtype)
