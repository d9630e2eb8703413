from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infradoc_engine.sampler import LOOKS, Sampler, SamplingParams


def draw(logits: torch.Tensor, params: SamplingParams, count: int) -> Counter[int]:
    """`count` tokens from one row of logits, as so many rows of one batch."""
    rows = logits.expand(count, -1)
    picked = Sampler().sample(rows, [str(i) for i in range(count)], [params] * count)
    return Counter(one.token_id for one in picked)


def test_greedy_takes_the_best_and_leaves_logits_alone() -> None:
    logits = torch.randn(5, 100)
    kept = logits.clone()
    picked = Sampler().sample(logits, list("abcde"), [SamplingParams(temperature=0.0)] * 5)
    assert [one.token_id for one in picked] == logits.argmax(-1).tolist()
    assert all(one.logprob is None and one.top_logprobs is None for one in picked)
    assert torch.equal(logits, kept)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_shares_follow_the_softmax(temperature: float) -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0])
    counts = draw(logits, SamplingParams(temperature=temperature), 20_000)
    expected = (logits / temperature).softmax(-1)
    for token, share in enumerate(expected.tolist()):
        assert counts[token] / 20_000 == pytest.approx(share, abs=5 * math.sqrt(share / 20_000))


def test_top_k_and_top_p_cut_exactly() -> None:
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    assert set(draw(logits, SamplingParams(top_k=2), 2000)) == {0, 1}
    assert set(draw(logits, SamplingParams(top_k=1), 200)) == {0}
    assert set(draw(logits, SamplingParams(top_p=0.65), 2000)) == {0, 1}
    assert set(draw(logits, SamplingParams(top_p=0.75), 2000)) == {0, 1, 2}
    assert set(draw(logits, SamplingParams(top_p=0.01), 200)) == {0}
    # Top-p is a share of what top-k left: 0.4 of 0.7 is 0.57.
    assert set(draw(logits, SamplingParams(top_k=2, top_p=0.5), 500)) == {0}
    assert set(draw(logits, SamplingParams(top_k=2, top_p=0.6), 500)) == {0, 1}
    shares = draw(logits, SamplingParams(top_k=2), 20_000)
    assert shares[0] / 20_000 == pytest.approx(4 / 7, abs=0.02)


@pytest.mark.parametrize("reach", [0.2, 0.9])
def test_top_p_over_a_flat_vocabulary_reaches_beyond_the_first_looks(reach: float) -> None:
    """All tokens nearly alike: most of the mass lies beyond the first look, and beyond the second."""
    vocab = 4 * LOOKS[1]
    logits = -torch.arange(vocab) * 1e-7
    seen = draw(logits, SamplingParams(top_p=reach), 1500)
    assert max(seen) < math.ceil(reach * vocab) + 2
    assert max(seen) > 0.95 * reach * vocab and len(seen) > 1000


def test_top_k_beyond_the_first_look() -> None:
    logits = torch.zeros(4 * LOOKS[0])
    logits[3 * LOOKS[0] :] = -50.0
    seen = draw(logits, SamplingParams(top_k=2 * LOOKS[0], top_p=0.9), 4000)
    assert 1.5 * LOOKS[0] < len(seen) < 2 * LOOKS[0]


def test_rows_of_one_batch_keep_their_own_settings() -> None:
    logits = torch.tensor([[0.0, 5.0, 4.0]]).repeat(4, 1)
    params = [
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=1.0, top_k=1),
        SamplingParams(temperature=1e-3),
        SamplingParams(temperature=1.0, top_p=1e-6, logprobs=2),
    ]
    picked = Sampler().sample(logits, list("abcd"), params)
    assert [one.token_id for one in picked] == [1, 1, 1, 1]
    assert [one.top_logprobs is None for one in picked] == [True, True, True, False]


def test_a_seed_gives_the_same_tokens_in_any_company() -> None:
    rows = torch.randn(12, 50)
    seeded = SamplingParams(seed=7)
    alone = Sampler()
    first = [alone.sample(rows[i : i + 1], ["a"], [seeded])[0].token_id for i in range(12)]
    busy = Sampler()
    second = []
    for i in range(12):
        batch = torch.stack((rows[(i + 5) % 12], rows[i], rows[i - 1]))
        picked = busy.sample(batch, ["x", "a", "y"], [SamplingParams(), seeded, SamplingParams(seed=7, top_k=3)])
        second.append(picked[1].token_id)
    assert first == second
    busy.release("a")
    assert busy.sample(rows[:1], ["a"], [seeded])[0].token_id == first[0]  # starts over, nothing kept
    other = Sampler()
    assert [other.sample(rows[i : i + 1], ["a"], [SamplingParams(seed=8)])[0].token_id for i in range(12)] != first


def test_unseeded_requests_differ() -> None:
    flat = torch.zeros(1, 1000)
    assert Sampler().sample(flat.expand(8, -1), list("abcdefgh"), [SamplingParams()] * 8) != Sampler().sample(
        flat.expand(8, -1), list("abcdefgh"), [SamplingParams()] * 8
    )


def test_logprobs_are_of_the_model_before_temperature() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0, 0.0]])
    expected = logits.double().log_softmax(-1)[0]
    one = Sampler().sample(logits, ["a"], [SamplingParams(temperature=0.0, logprobs=3)])[0]
    assert one.logprob == pytest.approx(float(expected[1]), abs=1e-6)
    assert one.top_logprobs is not None
    assert [token for token, _ in one.top_logprobs] == [1, 2, 0]
    for token, value in one.top_logprobs:
        assert value == pytest.approx(float(expected[token]), abs=1e-6)
    warm = Sampler().sample(logits, ["a"], [SamplingParams(temperature=50.0, logprobs=0, seed=1)])[0]
    assert warm.logprob == pytest.approx(float(expected[warm.token_id]), abs=1e-6) and warm.top_logprobs == []


@settings(max_examples=80, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.floats(0, 3), st.integers(0, 12), st.floats(0.01, 1.0), st.integers(0, 3), st.floats(-30, 30)),
        min_size=1,
        max_size=6,
    ),
    data_seed=st.integers(0, 10_000),
)
def test_never_a_token_beyond_the_limits(rows: list[tuple[float, int, float, int, float]], data_seed: int) -> None:
    generator = torch.Generator().manual_seed(data_seed)
    logits = torch.stack([torch.randn(20, generator=generator) * 4 + shift for *_, shift in rows])
    params = [SamplingParams(t, k, p, seed=data_seed, logprobs=n) for t, k, p, n, _ in rows]
    picked = Sampler().sample(logits, [str(i) for i in range(len(rows))], params)
    for row, (one, p) in enumerate(zip(picked, params, strict=True)):
        order = logits[row].argsort(descending=True).tolist()
        rank = order.index(one.token_id)
        assert rank < (p.top_k or 20)
        if p.temperature > 0.01:
            probs = (logits[row].double() / p.temperature).softmax(-1)[order]
            if p.top_k:
                probs = probs[: p.top_k] / probs[: p.top_k].sum()
            assert rank == 0 or float(probs[:rank].sum()) < p.top_p + 1e-5


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"temperature": 1e9},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_k": -1},
        {"seed": 1 << 70},
        {"logprobs": -1},
    ],
)
def test_settings_out_of_range_are_named(bad: dict) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(bad))} is "):
        SamplingParams(**bad)
