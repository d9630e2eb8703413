from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from infradoc_kernels import rms_norm as module
from infradoc_kernels.reference.rms_norm import rms_norm as reference

TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def check(
    kernel: Callable[..., Any],
    guarded: Any,
    shape: tuple[int, int],
    dtype: torch.dtype = torch.float32,
    with_residual: bool = True,
    eps: float = 1e-5,
    scale: float = 1.0,
) -> None:
    """Against float64, from rows that stand apart in memory with NaN between and around them."""
    generator = torch.Generator().manual_seed(shape[0] * 1000 + shape[1])
    x = guarded.empty(shape[0], shape[1] + 3, dtype=dtype)[:, : shape[1]]
    x.copy_(torch.randn(shape, generator=generator) * scale)
    weight = guarded.copy(torch.randn(shape[1], generator=generator).to(dtype))
    residual = None
    if with_residual:
        residual = guarded.empty(shape[0], shape[1] + 7, dtype=dtype)[:, : shape[1]]
        residual.copy_(torch.randn(shape, generator=generator) * scale)
    kept = x.clone(), weight.clone(), None if residual is None else residual.clone()
    y, summed = kernel(x, weight, eps, residual)
    guarded.check()
    assert y.dtype == summed.dtype == dtype and y.shape == summed.shape == shape and y.is_contiguous()
    wide = x.double() if residual is None else x.double() + residual.double()
    tolerance = {"atol": TOLERANCE[dtype] * scale, "rtol": TOLERANCE[dtype]}
    torch.testing.assert_close(summed.double(), wide, **tolerance)
    wide = summed.double()
    expected = wide / (wide.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()
    torch.testing.assert_close(y.double(), expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    assert torch.equal(x, kept[0]) and torch.equal(weight, kept[1])
    assert residual is None or torch.equal(residual, kept[2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("with_residual", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (2, 576), (5, 1000), (2, 4096)])
def test_against_float64(guarded: Any, shape: tuple[int, int], with_residual: bool, dtype: torch.dtype) -> None:
    check(module.rms_norm, guarded, shape, dtype, with_residual)


@pytest.mark.parametrize("seed", range(8))
def test_random_shapes(guarded: Any, seed: int) -> None:
    pick = random.Random(seed)
    shape = pick.randint(1, 9), pick.randint(1, 3000)
    check(module.rms_norm, guarded, shape, with_residual=pick.random() < 0.5, eps=10 ** -pick.uniform(1, 7))


@pytest.mark.parametrize("hidden", [module.MAX_HIDDEN, module.MAX_HIDDEN - 1])
def test_wide_rows(guarded: Any, hidden: int) -> None:
    check(module.rms_norm, guarded, (2, hidden), torch.bfloat16)


def test_rounds_where_the_reference_rounds() -> None:
    """In float16: the interpreter cuts to bfloat16 where devices round."""
    generator = torch.Generator().manual_seed(3)
    x, residual, weight = (torch.randn(4, 64, generator=generator).half() for _ in range(3))
    y, summed = module.rms_norm(x, weight[0], 1e-6, residual)
    expected = reference(x, weight[0], 1e-6, residual)
    assert torch.equal(summed, expected[1])
    torch.testing.assert_close(y, expected[0], atol=0, rtol=2**-10)  # one unit in the last place


def test_without_a_residual_the_sum_is_x_itself_and_no_rows_are_fine() -> None:
    x = torch.randn(2, 8)
    assert module.rms_norm(x, torch.ones(8), 1e-6)[1] is x
    assert module.rms_norm(x[:0], torch.ones(8), 1e-6)[0].shape == (0, 8)


def check_large(kernel: Callable[..., Any], virtual: Any) -> None:
    """Three rows 2^30 values apart. Offsets that wrap around in 32 bits land below, in the zeros before the rows."""
    flat = virtual(2**32 + 64, torch.bfloat16)
    x = flat[2**31 :].as_strided((3, 64), (2**30, 1))
    x.copy_(torch.arange(3)[:, None] + 1.0)
    y, summed = kernel(x, torch.ones(64, dtype=torch.bfloat16), 1e-6, x)
    assert torch.equal(summed, (torch.arange(3)[:, None] * 2.0 + 2).bfloat16().expand(3, 64))
    torch.testing.assert_close(y, torch.ones(3, 64, dtype=torch.bfloat16))


def test_rows_beyond_32_bits(virtual: Any) -> None:
    check_large(module.rms_norm, virtual)


@pytest.mark.parametrize(
    ("snippet", "replacement"),
    [
        ("inside = column < hidden", "inside = column < BLOCK"),  # no mask: the next row leaks in
        ("inside = column < hidden", "inside = column < hidden - 1"),
        ("x_ptr + row * stride_x + column", "x_ptr + row * hidden + column"),
        ("residual_ptr + row * stride_residual", "residual_ptr + row * stride_x"),
        (" / hidden + eps)", " / BLOCK + eps)"),
        (" / hidden + eps)", " / hidden)"),
        ("tl.rsqrt(", "tl.sqrt("),
        ("wide = summed.to(tl.float32)", "wide = wide - wide"),
        ("(normed * weight)", "(normed)"),
    ],
)
def test_a_wrong_kernel_fails(guarded: Any, mutate: Any, snippet: str, replacement: str) -> None:
    wrong = mutate(module, snippet, replacement).rms_norm
    check(module.rms_norm, guarded, (3, 50), eps=0.1, scale=0.5)
    with pytest.raises(AssertionError):
        check(wrong, guarded, (3, 50), eps=0.1, scale=0.5)


def test_a_kernel_that_counts_rows_in_32_bits_fails(virtual: Any, mutate: Any) -> None:
    wrong = mutate(module, "tl.program_id(0).to(tl.int64)", "tl.program_id(0)").rms_norm
    with pytest.raises(AssertionError):
        check_large(wrong, virtual)


@pytest.mark.parametrize(
    ("x", "weight", "residual", "message"),
    [
        (torch.zeros(2, 3, 4), torch.zeros(4), None, r"x has shape \(2, 3, 4\), it must be \[\*, \*\]"),
        (torch.zeros(2, 4), torch.zeros(5), None, r"weight has shape \(5,\), it must be \[4\]"),
        (torch.zeros(2, 4, dtype=torch.int32), torch.zeros(4), None, "x is torch.int32"),
        (torch.zeros(4, 2).t(), torch.zeros(4), None, r"x has strides \(1, 2\)"),
        (torch.zeros(2, 4), torch.zeros(4), torch.zeros(3, 4), r"residual has shape \(3, 4\)"),
        (torch.zeros(2, 4), torch.zeros(4), torch.zeros(2, 4).half(), "residual is torch.float16"),
        (torch.zeros(1, 16385), torch.zeros(16385), None, "rows are 16385 wide"),
    ],
)
def test_what_does_not_fit_is_named(x: Any, weight: Any, residual: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        module.rms_norm(x, weight, 1e-6, residual)
