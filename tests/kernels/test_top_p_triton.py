from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from infradoc_engine.sampler import _kept
from infradoc_kernels import top_p as module
from infradoc_kernels.reference.top_p import top_p_mask as reference


def naive(probs: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    """One row, token by token, in float64 (Python's own numbers)."""
    values = probs.tolist()
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))
    order = order[: top_k or len(values)]
    share = top_p * sum(values[i] for i in order)
    out, before = torch.zeros_like(probs), 0.0
    for place, i in enumerate(order):
        if place and before >= share:
            break
        out[i] = values[i]
        before += values[i]
    return out


def check(
    kernel: Callable[..., torch.Tensor],
    guarded: Any,
    vocab: int,
    limits: list[tuple[int, float]],
    spread: float = 3.0,
    levels: int = 0,
    seed: int = 0,
) -> None:
    """Against the naive loop; `levels` makes many equal probabilities."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(limits), vocab, generator=generator) * spread
    if levels:
        logits = (logits * levels).round() / levels
    probs = guarded.empty(len(limits), vocab + 3)[:, :vocab].copy_(logits.softmax(-1))
    top_k = guarded.copy(torch.tensor([k for k, _ in limits]))
    top_p = guarded.copy(torch.tensor([p for _, p in limits], dtype=torch.float64))
    kept = kernel(probs, top_k, top_p)
    guarded.check()
    assert kept.shape == probs.shape and kept.dtype == torch.float32 and kept.is_contiguous()
    for row, (k, p) in enumerate(limits):
        expected = naive(probs[row], k, p)
        assert torch.equal(kept[row], expected), (row, k, p, int((kept[row] > 0).sum()), int((expected > 0).sum()))
    assert torch.equal(reference(probs, top_k, top_p), kept)


LIMITS = [(0, 0.9), (0, 1.0), (0, 1e-6), (5, 1.0), (40, 0.7), (10_000_000, 0.3)]


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tiles make a small vocabulary take many turns of the loops."""
    monkeypatch.setattr(module, "BLOCK", 128)


@pytest.mark.parametrize("vocab", [1, 127, 128, 129, 300])
@pytest.mark.usefixtures("small_tiles")
def test_against_a_token_by_token_loop(guarded: Any, vocab: int) -> None:
    check(module.top_p_mask, guarded, vocab, LIMITS)


@pytest.mark.usefixtures("small_tiles")
def test_equal_probabilities_go_by_token_id(guarded: Any) -> None:
    check(module.top_p_mask, guarded, 300, LIMITS, spread=1.0, levels=2)


def test_a_flat_row(guarded: Any) -> None:
    # Not a share that falls between two tokens: 64 equal ones are summed without any rounding.
    check(module.top_p_mask, guarded, 64, [(0, 0.5), (0, 0.51), (7, 0.5), (63, 0.999), (64, 1.0)], spread=0.0)


@pytest.mark.parametrize("seed", range(8))
def test_random_rows(guarded: Any, seed: int) -> None:
    pick = random.Random(seed)
    limits = [(pick.choice([0, 0, pick.randint(1, 200)]), pick.uniform(0.01, 1.0)) for _ in range(2)]
    vocab, spread = pick.randint(2, 9000), pick.choice([0.1, 1.0, 4.0, 20.0])
    check(module.top_p_mask, guarded, vocab, limits, spread, levels=pick.choice([0, 3]), seed=seed)


def test_a_real_vocabulary(guarded: Any) -> None:
    check(module.top_p_mask, guarded, 49152, [(0, 0.9), (50, 0.95)], spread=2.5)


def test_the_mass_is_what_the_sampler_of_the_engine_keeps() -> None:
    probs = (torch.randn(6, 500, generator=torch.Generator().manual_seed(4)) * 2).softmax(-1)
    top_k, top_p = torch.tensor([500, 500, 20, 20, 3, 1]), torch.tensor([0.9, 0.2, 0.9, 0.5, 1.0, 1.0]).double()
    best, ids = probs.sort(dim=-1, descending=True, stable=True)
    expected = torch.zeros(6, 500, dtype=torch.float64).scatter_(1, ids, _kept(best, top_k, top_p))
    assert torch.equal(module.top_p_mask(probs, top_k, top_p).double(), expected)


def test_no_rows_and_a_certain_token() -> None:
    none = torch.zeros(0)
    assert module.top_p_mask(torch.zeros(0, 9), none.long(), none).shape == (0, 9)
    certain = torch.zeros(1, 9)
    certain[0, 4] = 1.0
    assert torch.equal(module.top_p_mask(certain, torch.tensor([0]), torch.tensor([0.9])), certain)


def check_large(kernel: Callable[..., torch.Tensor], virtual: Any) -> None:
    """Three rows 2^30 values apart. Offsets that wrap around in 32 bits land below, in zeros."""
    probs = virtual(2**32 + 64, torch.float32)[2**31 :].as_strided((3, 8), (2**30, 1))
    probs.copy_((torch.arange(24).view(3, 8) * 0.3).softmax(-1))
    limits = torch.tensor([2, 3, 4]), torch.ones(3)
    assert torch.equal(kernel(probs, *limits), reference(probs.clone(), *limits))


def test_rows_beyond_32_bits(virtual: Any) -> None:
    check_large(module.top_p_mask, virtual)


def test_a_kernel_that_counts_rows_in_32_bits_fails(virtual: Any, mutate: Any) -> None:
    wrong = mutate(module, "tl.program_id(0).to(tl.int64)", "tl.program_id(0)").top_p_mask
    with pytest.raises(AssertionError):
        check_large(wrong, virtual)


def check_sharply(kernel: Callable[..., torch.Tensor], guarded: Any) -> None:
    """Few rows that each depend on much: ties across tiles, ties that top-k cuts, a last token that counts."""
    check(kernel, guarded, 256, [(0, 1.0), (0, 0.75), (130, 0.5)], spread=0.0)
    check(kernel, guarded, 300, [(40, 0.7), (5, 1.0)], spread=1.0, levels=2)
    check(kernel, guarded, 200, [(0, 0.9)])


@pytest.mark.usefixtures("small_tiles")
def test_the_right_kernel_passes_what_the_wrong_ones_fail(guarded: Any) -> None:
    check_sharply(module.top_p_mask, guarded)


@pytest.mark.filterwarnings("ignore:All-NaN slice")
@pytest.mark.parametrize(
    ("snippet", "replacement"),
    [
        ("mask=column < vocab_size, other=0.0", "mask=column < vocab_size - 1, other=0.0"),
        ("mask=column < vocab_size, other=0.0", "mask=column < vocab_size, other=0.1"),
        ("inside = column < vocab_size", "inside = column < vocab_size - 1"),
        ("row * stride_probs", "row * vocab_size"),
        ("tl.max(tl.where(enough, there, 0.0), axis=0)", "tl.max(there, axis=0)"),
        ("ties_k = top_k - count.to(tl.int32)", "ties_k = count.to(tl.int32)"),
        ("(over_k + ties_k * value_k)", "over_k"),
        ("ties += (ties < room).to(tl.int32)", "ties += 0"),
        ("seen += tl.sum(equal, axis=0)", "seen += 0"),
        ("tl.cumsum(equal, axis=0) - equal", "tl.cumsum(equal, axis=0)"),
        ("while high - low > 1:", "while high - low > 4096:"),
    ],
)
def test_a_wrong_kernel_fails(
    guarded: Any, mutate: Any, monkeypatch: pytest.MonkeyPatch, snippet: str, replacement: str
) -> None:
    wrong = mutate(module, snippet, replacement)
    monkeypatch.setattr(wrong, "BLOCK", 128)
    with pytest.raises(AssertionError):
        check_sharply(wrong.top_p_mask, guarded)


@pytest.mark.parametrize(
    ("probs", "top_k", "top_p", "message"),
    [
        (torch.zeros(3), torch.zeros(1).long(), torch.ones(1), r"probs has shape \(3,\)"),
        (torch.zeros(1, 3).half(), torch.zeros(1).long(), torch.ones(1), "probs is torch.float16"),
        (torch.zeros(1, 3), torch.zeros(2).long(), torch.ones(1), r"top_k has shape \(2,\), it must be \[1\]"),
        (torch.zeros(1, 3), torch.zeros(1), torch.ones(1), "top_k is torch.float32"),
        (torch.zeros(1, 3), torch.zeros(1).long(), torch.ones(1).half(), "top_p is torch.float16"),
        (torch.zeros(3, 2).t(), torch.zeros(2).long(), torch.ones(2), r"probs has strides \(1, 2\)"),
    ],
)
def test_what_does_not_fit_is_named(probs: Any, top_k: Any, top_p: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        module.top_p_mask(probs, top_k, top_p)
