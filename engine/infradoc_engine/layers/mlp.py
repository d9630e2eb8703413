"""The gated feed-forward part."""

from __future__ import annotations

import torch

from infradoc_engine.layers.linear import Linear
from infradoc_kernels import ops


class GatedMLP:
    """down(silu(gate(x)) * up(x)); gate and up come from one matmul."""

    def __init__(self, gate_up: Linear, down: Linear) -> None:
        self.gate_up, self.down = gate_up, down

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x: [num_tokens, hidden] -> the same shape."""
        return self.down(ops.silu_and_mul(self.gate_up(x)))
