"""Root-mean-square normalisation, with the residual addition that precedes it in every layer."""

from __future__ import annotations

import torch


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """y = s / sqrt(mean(s^2) + eps) * weight with s = x + residual; returns (y, s).

    x, residual: [num_tokens, hidden]; weight: [hidden]; statistics in float32; y and s in x's dtype.
    """
    # [num_tokens, hidden]
    summed = x if residual is None else x + residual
    wide = summed.float()
    # vector_norm reads the row once; the square is never stored.
    scale = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(eps).rsqrt_()
    return (wide * scale).to(x.dtype).mul_(weight), summed
