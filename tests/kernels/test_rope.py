from __future__ import annotations

import cmath

import pytest
import torch

from infradoc_kernels import ops


@pytest.mark.parametrize(("head_dim", "heads"), [(64, 12), (8, 1), (2, 3)])
def test_against_complex_rotation(head_dim: int, heads: int) -> None:
    theta, positions = 10000.0, torch.tensor([0, 1, 7, 900])
    cos, sin = ops.rope_angles(head_dim, theta, 1000)
    x = torch.randn(4, heads, head_dim)
    kept = x.clone()
    y = ops.rope(x, cos[positions], sin[positions])
    half = head_dim // 2
    for row, position in enumerate(positions.tolist()):
        for head in range(heads):
            for i in range(half):
                turn = cmath.exp(1j * position * theta ** (-2 * i / head_dim))
                turned = complex(float(x[row, head, i]), float(x[row, head, i + half])) * turn
                assert float(y[row, head, i]) == pytest.approx(turned.real, abs=3e-4)
                assert float(y[row, head, i + half]) == pytest.approx(turned.imag, abs=3e-4)
    assert torch.equal(x, kept)


def test_position_zero_changes_nothing() -> None:
    cos, sin = ops.rope_angles(16, 10000.0, 4)
    x = torch.randn(1, 2, 16)
    assert torch.equal(ops.rope(x, cos[:1], sin[:1]), x)


def test_score_depends_on_distance_only() -> None:
    cos, sin = ops.rope_angles(32, 100000.0, 512)
    q, k = torch.randn(1, 1, 32), torch.randn(1, 1, 32)

    def score(at: int, to: int) -> float:
        turned = ops.rope(q, cos[at : at + 1], sin[at : at + 1]), ops.rope(k, cos[to : to + 1], sin[to : to + 1])
        return float((turned[0] * turned[1]).sum())

    assert score(40, 30) == pytest.approx(score(410, 400), abs=1e-3)


def test_bfloat16_is_turned_in_float32() -> None:
    cos, sin = ops.rope_angles(8, 10000.0, 300)
    x = torch.randn(1, 1, 8, dtype=torch.bfloat16)
    y = ops.rope(x, cos[299:], sin[299:])
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, ops.rope(x.float(), cos[299:], sin[299:]).bfloat16())
