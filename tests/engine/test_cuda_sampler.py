"""The GPU's sampler, run on the CPU (with the plain top-p): what it may pick, how often, and what it tells of it."""

from __future__ import annotations

import pytest
import torch

from infradoc_engine.cuda_sampler import CudaSampler
from infradoc_engine.sampler import GREEDY, Sampler, SamplingParams

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, 3.0, 2.5, -40.0])


def names(count: int) -> list[str]:
    return [str(i) for i in range(count)]


def frequencies(params: SamplingParams, draws: int = 20_000) -> torch.Tensor:
    sampler = CudaSampler()
    sampler._shared.manual_seed(3)
    picked = sampler.sample(LOGITS.expand(draws, -1), names(draws), [params] * draws)
    return torch.bincount(torch.tensor([one.token_id for one in picked]), minlength=LOGITS.numel()) / draws


@pytest.mark.parametrize(
    ("params", "allowed"),
    [
        (SamplingParams(temperature=1.0), [0, 1, 2, 3, 4, 5]),
        (SamplingParams(temperature=2.0, top_k=3), [4, 5, 0]),
        (SamplingParams(temperature=1.0, top_p=0.7), [4, 5]),
        (SamplingParams(temperature=1.0, top_p=0.99, top_k=2), [4, 5]),
        (SamplingParams(temperature=1e-9), [4]),
    ],
)
def test_tokens_come_as_often_as_their_share(params: SamplingParams, allowed: list[int]) -> None:
    found = frequencies(params)
    kept = torch.zeros_like(LOGITS, dtype=torch.float64)
    kept[allowed] = (LOGITS.double() / max(params.temperature, 1e-6)).softmax(-1)[allowed]
    expected = kept / kept.sum()
    outside = [i for i in range(LOGITS.numel()) if i not in allowed]
    assert float(found[outside].sum()) == 0.0
    spread = (expected * (1 - expected) / 20_000).sqrt()
    assert bool(((found - expected).abs() <= 5 * spread + 1e-9).all()), (found, expected)


def test_greedy_rows_beside_drawn_ones_take_the_best() -> None:
    logits = torch.randn(6, 40, generator=torch.Generator().manual_seed(1))
    mixed = [GREEDY, SamplingParams(top_p=0.5), GREEDY, SamplingParams(), GREEDY, GREEDY]
    picked = CudaSampler().sample(logits, names(6), mixed)
    best = logits.argmax(-1).tolist()
    assert [picked[i].token_id for i in (0, 2, 4, 5)] == [best[i] for i in (0, 2, 4, 5)]


def test_seeded_rows_do_not_depend_on_their_neighbours() -> None:
    logits = torch.randn(1, 200, generator=torch.Generator().manual_seed(2))
    seeded = SamplingParams(temperature=1.5, seed=9, top_p=0.95)
    alone, beside = CudaSampler(), CudaSampler()
    one = [alone.sample(logits, ["a"], [seeded])[0].token_id for _ in range(20)]
    both = [beside.sample(logits.expand(2, -1), ["b", "a"], [SamplingParams(), seeded])[1].token_id for _ in range(20)]
    assert one == both and len(set(one)) > 3
    alone.release("a")
    assert [alone.sample(logits, ["a"], [seeded])[0].token_id for _ in range(20)] == one


def test_log_probabilities_are_those_of_the_plain_sampler() -> None:
    logits = torch.randn(4, 30, generator=torch.Generator().manual_seed(4)) * 3
    params = [
        SamplingParams(0.0, logprobs=3),
        GREEDY,
        SamplingParams(0.0, logprobs=0),
        SamplingParams(0.0, logprobs=40),
    ]
    ours, plain = (kind().sample(logits, names(4), params) for kind in (CudaSampler, Sampler))
    for one, other in zip(ours, plain, strict=True):
        assert one.token_id == other.token_id
        if other.logprob is None:
            assert one.logprob is None and one.top_logprobs is None
            continue
        assert one.logprob == pytest.approx(other.logprob, abs=1e-6)
        assert one.top_logprobs is not None and other.top_logprobs is not None
        assert [token for token, _ in one.top_logprobs] == [token for token, _ in other.top_logprobs]
        assert [v for _, v in one.top_logprobs] == pytest.approx([v for _, v in other.top_logprobs], abs=1e-6)
