from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.load.record import RequestRecord
from infradoc.remediation.lengths import LEAST_REQUESTS, sent_tokens


def answered(words: int, tokens: int, answer: int = 20, **more: object) -> RequestRecord:
    record = RequestRecord(0, "/v1/completions", 0.0, "c", e2e=1.0, status=200, prompt_words=words)
    return replace(record, prompt_tokens=tokens, max_tokens=answer, **more)  # type: ignore[arg-type]


def test_a_cut_prompt_counts_as_it_was_sent() -> None:
    short = [answered(50, 55)] * 30
    cut = [answered(200, 100)] * 30
    assert sent_tokens([*short, *cut], 0.99) == 240  # 200 words x 1.1 tokens + 20


def test_a_few_long_ones_stay_beyond_the_quantile() -> None:
    records = [answered(100, 100)] * 199 + [answered(900, 900)]
    assert sent_tokens(records, 0.99) == 120
    assert sent_tokens(records, 1.0) == 920


def test_a_template_weighs_least_in_the_longest() -> None:
    """Forty tokens around each prompt: twice the words in a prompt of 20, a fifth more in one of 200."""
    records = [answered(20, 60)] * 30 + [answered(200, 240)] * 30 + [answered(400, 256)] * 30
    assert sent_tokens(records, 0.99) == 500


@pytest.mark.parametrize(
    "records",
    [
        [],
        [answered(50, 55)] * (LEAST_REQUESTS - 1),
        [answered(200, 100)] * 50,  # all cut: nobody knows what a word is
        [answered(50, 55, status=503, error="busy")] * 50,
    ],
)
def test_too_little_is_nothing(records: list[RequestRecord]) -> None:
    assert sent_tokens(records, 0.99) is None


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(1, 700), st.integers(0, 100)), max_size=60))
def test_never_below_what_the_server_counted(rows: list[tuple[int, int, int]]) -> None:
    records = [answered(words, tokens, answer) for words, tokens, answer in rows]
    found = sent_tokens(records, 1.0)
    assert found is None or found >= max(tokens + answer for _, tokens, answer in rows)
