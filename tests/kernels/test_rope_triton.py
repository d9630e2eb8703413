from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from infradoc_kernels import rope as module
from infradoc_kernels.reference.rope import rope as reference
from infradoc_kernels.reference.rope import rope_angles

TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def check(
    kernel: Callable[..., Any], guarded: Any, tokens: int, heads: int, head_dim: int, dtype: torch.dtype = torch.float32
) -> None:
    """Against float64, on the query part of a fused projection; everything beside it is NaN."""
    generator = torch.Generator().manual_seed(tokens * 1000 + heads * 10 + head_dim)
    x = guarded.empty(tokens, heads + 2, head_dim + 6, dtype=dtype)[:, :heads, :head_dim]
    x.copy_(torch.randn(tokens, heads, head_dim, generator=generator))
    cos, sin = rope_angles(head_dim, 10000.0, 500)
    positions = torch.randint(500, (tokens,), generator=generator)
    cos = guarded.empty(tokens, head_dim + 1)[:, :head_dim].copy_(cos[positions])
    sin = guarded.empty(tokens, head_dim + 2)[:, :head_dim].copy_(sin[positions])
    kept = x.clone()
    y = kernel(x, cos, sin)
    guarded.check()
    assert y.dtype == dtype and y.shape == x.shape and y.is_contiguous() and torch.equal(x, kept)
    half = head_dim // 2
    first, second = x.double().split(half, -1)
    c, s = cos.double()[:, None, :half], sin.double()[:, None, half:]
    expected = torch.cat((first * c - second * s, second * c + first * s), -1)
    torch.testing.assert_close(y.double(), expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("tokens", "heads", "head_dim"), [(1, 1, 2), (4, 9, 64), (3, 3, 80), (2, 5, 96), (2, 33, 128), (1, 17, 256)]
)
def test_against_float64(guarded: Any, tokens: int, heads: int, head_dim: int, dtype: torch.dtype) -> None:
    check(module.rope, guarded, tokens, heads, head_dim, dtype)


@pytest.mark.parametrize("seed", range(8))
def test_random_shapes(guarded: Any, seed: int) -> None:
    pick = random.Random(seed)
    check(module.rope, guarded, pick.randint(1, 9), pick.randint(1, 40), 2 * pick.randint(1, 128))


def test_as_the_reference_in_bfloat16() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(6, 4, 32, generator=generator).bfloat16()
    cos, sin = rope_angles(32, 10000.0, 6)
    torch.testing.assert_close(module.rope(x, cos, sin), reference(x, cos, sin), atol=1e-5, rtol=2**-7)


def test_no_tokens() -> None:
    assert module.rope(torch.zeros(0, 2, 8), torch.zeros(0, 8), torch.zeros(0, 8)).shape == (0, 2, 8)


def check_large(kernel: Callable[..., Any], virtual: Any) -> None:
    """Tokens and heads 2^30 values apart. Offsets that wrap around in 32 bits land below, in zeros."""
    flat = virtual(2**33, torch.bfloat16)
    cos, sin = torch.ones(3, 8), torch.zeros(3, 8)
    for strides in ((2**30, 8, 1), (8, 2**30, 1)):
        x = flat[2**31 :].as_strided((3, 3, 8), strides)
        x.copy_(torch.arange(72).view(3, 3, 8) + 1.0)
        assert torch.equal(kernel(x, cos, sin), x)


def test_offsets_beyond_32_bits(virtual: Any) -> None:
    check_large(module.rope, virtual)


@pytest.mark.parametrize(
    "snippet", ["tl.program_id(0).to(tl.int64)", "tl.arange(0, BLOCK_HEADS)).to(tl.int64)"], ids=["token", "head"]
)
def test_a_kernel_that_counts_in_32_bits_fails(virtual: Any, mutate: Any, snippet: str) -> None:
    wrong = mutate(module, snippet, snippet.removesuffix(".to(tl.int64)")).rope
    with pytest.raises(AssertionError):
        check_large(wrong, virtual)


@pytest.mark.parametrize(
    ("snippet", "replacement"),
    [
        ("in_half = pair < HALF", "in_half = pair < BLOCK_HALF"),
        ("in_half = pair < HALF", "in_half = pair < HALF - 1"),
        ("(head < num_heads)[:, None]", "(head < BLOCK_HEADS)[:, None]"),
        ("token * stride_x_token", "token * num_heads * stride_x_head"),
        ("head[:, None] * stride_x_head", "head[:, None] * (2 * HALF)"),
        ("token * stride_cos + pair", "token * stride_sin + pair"),
        ("second * sin_first[None, :]", "second * sin_second[None, :]"),
        ("first * sin_second[None, :]", "second * sin_second[None, :]"),
        ("tl.load(source + HALF", "tl.load(source + BLOCK_HALF"),
    ],
)
def test_a_wrong_kernel_fails(guarded: Any, mutate: Any, snippet: str, replacement: str) -> None:
    wrong = mutate(module, snippet, replacement).rope
    check(module.rope, guarded, 3, 5, 12)
    with pytest.raises(AssertionError):
        check(wrong, guarded, 3, 5, 12)


@pytest.mark.parametrize(
    ("x", "cos", "message"),
    [
        (torch.zeros(2, 8), torch.zeros(2, 8), r"x has shape \(2, 8\)"),
        (torch.zeros(2, 3, 7), torch.zeros(2, 7), "heads have 7 values"),
        (torch.zeros(2, 3, 8), torch.zeros(1, 8), r"cos has shape \(1, 8\), it must be \[2, 8\]"),
        (torch.zeros(2, 3, 8), torch.zeros(2, 8).half(), "cos is torch.float16, it must be torch.float32"),
        (torch.zeros(2, 8, 3).transpose(1, 2), torch.zeros(2, 8), r"x has strides \(24, 1, 3\)"),
    ],
)
def test_what_does_not_fit_is_named(x: Any, cos: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        module.rope(x, cos, cos)
