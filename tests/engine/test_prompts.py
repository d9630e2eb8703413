"""Whether a prompt fits, and how it is cut."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_engine.prompts import GenerationOptions, Refused, fit_prompt, truncate
from infradoc_engine.sampler import GREEDY


@dataclass(frozen=True)
class Limits:
    max_model_len: int = 20
    truncation_policy: str = "reject"
    max_queued_requests: int | None = None
    max_num_seqs: int = 4


def _options(max_tokens: int | None = None, **more: int) -> GenerationOptions:
    return GenerationOptions(GREEDY, max_tokens, **more)  # type: ignore[arg-type]


def test_prompt_and_answer_fit_exactly() -> None:
    prompt = fit_prompt([1] * 15, _options(5), Limits(), 100)
    assert len(prompt.token_ids) == 15 and prompt.max_tokens == 5 and prompt.cut is None
    with pytest.raises(Refused, match=r"20 tokens.*15 tokens.*\(21 in all\).*14 tokens or fewer") as refused:
        fit_prompt([1] * 15, _options(6), Limits(), 100)
    assert refused.value.reason == "length"


def test_defaults_take_what_is_left() -> None:
    assert fit_prompt([1] * 12, _options(), Limits(), 100).max_tokens == 8
    assert fit_prompt([1] * 12, _options(default_max_tokens=16), Limits(), 100).max_tokens == 8
    assert fit_prompt([1] * 2, _options(default_max_tokens=16), Limits(), 100).max_tokens == 16
    with pytest.raises(Refused):
        fit_prompt([1] * 20, _options(), Limits(), 100)


@pytest.mark.parametrize("ids", [[], [100], [-1], [5, 2**70]])
def test_bad_ids(ids: list[int]) -> None:
    with pytest.raises(Refused) as refused:
        fit_prompt(ids, _options(), Limits(), 100)
    assert refused.value.reason == "invalid"


def test_max_tokens_alone_over_the_limit() -> None:
    with pytest.raises(Refused, match="max_tokens is 20"):
        fit_prompt([1], _options(20), Limits(truncation_policy="left"), 100)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=60), st.integers(1, 60))
def test_truncate_keeps_the_count_and_the_right_ends(ids: list[int], keep: int) -> None:
    keep = min(keep, len(ids))
    assert truncate(ids, keep, "left") == ids[len(ids) - keep :]
    assert truncate(ids, keep, "right") == ids[:keep]
    middle = truncate(ids, keep, "middle")
    assert len(middle) == keep
    head = (keep + 1) // 2
    assert middle[:head] == ids[:head]
    assert keep == head or middle[head:] == ids[-(keep - head) :]


def test_the_client_s_own_cut_comes_first_and_is_marked() -> None:
    prompt = fit_prompt(list(range(50)), _options(2, truncate_prompt_tokens=5), Limits(), 100)
    assert prompt.token_ids == list(range(45, 50))
    assert prompt.cut is not None and prompt.cut.requested
    whole = fit_prompt(list(range(50)), _options(2, truncate_prompt_tokens=-1), Limits(), 100)
    assert whole.token_ids == list(range(32, 50))
