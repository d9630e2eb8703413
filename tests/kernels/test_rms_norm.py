from __future__ import annotations

import pytest
import torch

from infradoc_kernels import ops


@pytest.mark.parametrize("shape", [(1, 576), (3, 5), (17, 64), (128, 1)])
@pytest.mark.parametrize("with_residual", [True, False])
def test_against_float64(shape: tuple[int, int], with_residual: bool) -> None:
    x, weight = torch.randn(shape), torch.randn(shape[1])
    residual = torch.randn(shape) if with_residual else None
    kept = x.clone(), None if residual is None else residual.clone()
    y, total = ops.rms_norm(x, weight, 1e-5, residual)
    wide = x.double() + (residual.double() if residual is not None else 0)
    expected = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    torch.testing.assert_close(y.double(), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(total.double(), wide, atol=1e-6, rtol=1e-6)
    assert torch.equal(x, kept[0]) and (residual is None or torch.equal(residual, kept[1]))


def test_zero_row_stays_finite() -> None:
    y, _ = ops.rms_norm(torch.zeros(2, 8), torch.ones(8), 1e-6)
    assert torch.equal(y, torch.zeros(2, 8))


def test_bfloat16_keeps_its_type_and_sums_in_float32() -> None:
    x = torch.full((1, 4096), 3.0, dtype=torch.bfloat16)
    y, total = ops.rms_norm(x, torch.ones(4096, dtype=torch.bfloat16), 1e-6)
    assert y.dtype == total.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), torch.ones(1, 4096), atol=4e-3, rtol=0)
