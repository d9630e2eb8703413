from __future__ import annotations

import pytest
import torch

from infradoc_kernels import ops


@pytest.mark.parametrize("shape", [(1, 3072), (5, 2), (33, 14)])
def test_against_float64(shape: tuple[int, int]) -> None:
    x = torch.randn(shape) * 4
    kept = x.clone()
    gate, up = x.double().chunk(2, -1)
    expected = gate / (1 + (-gate).exp()) * up
    torch.testing.assert_close(ops.silu_and_mul(x).double(), expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(x, kept)


def test_extremes_stay_finite() -> None:
    y = ops.silu_and_mul(torch.tensor([[-200.0, 200.0, 1.0, 1.0]]))
    assert y[0].tolist() == pytest.approx([0.0, 200.0], abs=1e-30)  # the truth is -3e-85, below any float32
