"""What the kernels compute, in float64 and without regard to speed."""

from __future__ import annotations

import torch


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, context_len: int, window: int = 0
) -> torch.Tensor:
    """One request. q: [queries, heads, dim] at the end of the context; k, v: [context_len, kv_heads, dim]."""
    group = q.shape[1] // k.shape[1]
    keys, values = (x.double().repeat_interleave(group, dim=1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), keys) * scale
    positions = torch.arange(context_len - q.shape[0], context_len, device=q.device)[:, None]
    at = torch.arange(context_len, device=q.device)[None, :]
    hidden = at > positions
    if window:
        hidden |= at <= positions - window
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, float("-inf")).softmax(-1), values)


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalised and summed; the sum is rounded to x's type first, as it is what the next layer gets."""
    summed = x if residual is None else (x.double() + residual.double()).to(x.dtype)
    wide = summed.double()
    return wide / (wide.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight.double(), summed.double()


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """cos, sin as of ops.rope_angles, whose first half of sin carries the minus sign."""
    wide = x.double()
    return wide * cos.double()[:, None] + wide.roll(x.shape[-1] // 2, -1) * sin.double()[:, None]


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """silu of the first half times the second."""
    gate, up = x.double().chunk(2, dim=-1)
    return gate * torch.sigmoid(gate) * up


def relative_error(out: torch.Tensor, expected: torch.Tensor) -> float:
    """Norm of the difference over the norm of what is right; NaN where either has one."""
    return float((out.double() - expected.double()).norm() / expected.double().norm().clamp_min(1e-30))
