from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from infradoc_kernels import silu_and_mul as module
from infradoc_kernels.reference.silu_and_mul import silu_and_mul as reference

TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def check(kernel: Callable[..., Any], guarded: Any, shape: tuple[int, int], dtype: torch.dtype = torch.float32) -> None:
    """Against float64, from rows that stand apart in memory with NaN between and around them."""
    generator = torch.Generator().manual_seed(shape[0] * 1000 + shape[1])
    x = guarded.empty(shape[0], shape[1] + 5, dtype=dtype)[:, : shape[1]]
    x.copy_(torch.randn(shape, generator=generator) * 4)
    kept = x.clone()
    y = kernel(x)
    guarded.check()
    assert y.dtype == dtype and y.shape == (shape[0], shape[1] // 2) and y.is_contiguous() and torch.equal(x, kept)
    gate, up = x.double().chunk(2, -1)
    expected = gate / (1 + (-gate).exp()) * up
    torch.testing.assert_close(y.double(), expected, atol=4 * TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 2), (5, 14), (2, 3072), (3, 2 * 1025), (1, 2 * 4096)])
def test_against_float64(guarded: Any, shape: tuple[int, int], dtype: torch.dtype) -> None:
    check(module.silu_and_mul, guarded, shape, dtype)


@pytest.mark.parametrize("seed", range(8))
def test_random_shapes(guarded: Any, seed: int) -> None:
    pick = random.Random(seed)
    check(module.silu_and_mul, guarded, (pick.randint(1, 9), 2 * pick.randint(1, 5000)))


@pytest.mark.filterwarnings("ignore:overflow encountered in exp")
def test_extremes_stay_finite() -> None:
    y = module.silu_and_mul(torch.tensor([[-200.0, 200.0, 1.0, 1.0]]))
    assert y.tolist() == [[0.0, 200.0]]


def test_rounds_where_the_reference_rounds() -> None:
    """In float16: the interpreter cuts to bfloat16 where devices round."""
    x = (torch.randn(4, 64, generator=torch.Generator().manual_seed(5)) * 3).half()
    torch.testing.assert_close(module.silu_and_mul(x), reference(x), atol=0, rtol=2**-10)


def test_no_rows() -> None:
    assert module.silu_and_mul(torch.zeros(0, 8)).shape == (0, 4)


def check_large(kernel: Callable[..., Any], virtual: Any) -> None:
    """Three rows 2^30 values apart. Offsets that wrap around in 32 bits land below, in the zeros before the rows."""
    x = virtual(2**32 + 64, torch.bfloat16)[2**31 :].as_strided((3, 64), (2**30, 1))
    x.copy_(torch.arange(3)[:, None] + 1.0)
    torch.testing.assert_close(kernel(x), reference(x.clone()))


def test_rows_beyond_32_bits(virtual: Any) -> None:
    check_large(module.silu_and_mul, virtual)


def test_a_kernel_that_counts_rows_in_32_bits_fails(virtual: Any, mutate: Any) -> None:
    wrong = mutate(module, "tl.program_id(0).to(tl.int64)", "tl.program_id(0)").silu_and_mul
    with pytest.raises(AssertionError):
        check_large(wrong, virtual)


@pytest.mark.parametrize(
    ("snippet", "replacement"),
    [
        ("inside = column < inner", "inside = column < inner + BLOCK"),
        ("inside = column < inner", "inside = column < inner - 1"),
        ("x_ptr + row * stride_x + column", "x_ptr + row * 2 * inner + column"),
        ("stride_x + inner + column", "stride_x + column"),
        ("tl.program_id(1) * BLOCK", "tl.program_id(1)"),
        ("tl.sigmoid(gate)", "tl.sigmoid(-gate)"),
        ("(gated * up)", "(gated + up)"),
        ("(gate * tl.sigmoid(gate))", "(tl.sigmoid(gate))"),
    ],
)
def test_a_wrong_kernel_fails(guarded: Any, mutate: Any, snippet: str, replacement: str) -> None:
    wrong = mutate(module, snippet, replacement).silu_and_mul
    check(module.silu_and_mul, guarded, (3, 2 * 1100))
    with pytest.raises(AssertionError):
        check(wrong, guarded, (3, 2 * 1100))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(2, 3, 4), r"x has shape \(2, 3, 4\)"),
        (torch.zeros(2, 5), "rows are 5 wide"),
        (torch.zeros(2, 4).double(), "x is torch.float64"),
        (torch.zeros(4, 2).t(), r"x has strides \(1, 2\)"),
    ],
)
def test_what_does_not_fit_is_named(x: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        module.silu_and_mul(x)
