"""Waits: jitter within its bounds, Retry-After in both forms, and no window with more than its limit."""

from __future__ import annotations

import random
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.alerts.backoff import LONGEST_RETRY_AFTER, Limit, full_jitter, retry_after, take

NOW = 1_700_000_000.0


@given(attempt=st.integers(1, 10_000), seed=st.integers())
def test_jitter_grows_to_its_cap_and_never_beyond(attempt: int, seed: int) -> None:
    wait = full_jitter(attempt, 1.0, 300.0, random.Random(seed))
    limit = min(300.0, 2.0 ** min(attempt, 40))
    assert limit / 10 <= wait <= limit


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None), ("", None), ("soon", None), ("-5", None), ("1.5", None), ("0", 0.0), (" 30 ", 30.0),
        ("999999", LONGEST_RETRY_AFTER), ("9" * 400, LONGEST_RETRY_AFTER), ("٣", None),
        (formatdate(NOW + 90, usegmt=True), 90.0), (formatdate(NOW - 90, usegmt=True), 0.0),
        ("Fri, 99 Foo 2026 00:00:00 GMT", None),
    ],
)  # fmt: skip
def test_retry_after(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, NOW) == seconds


@given(text=st.text(max_size=60))
def test_any_header_is_read_or_passed_over(text: str) -> None:
    found = retry_after(text, NOW)
    assert found is None or 0 <= found <= LONGEST_RETRY_AFTER


@given(
    limits=st.lists(
        st.sampled_from([Limit(20, 60.0), Limit(5, 1.0), Limit(100, 60.0), Limit(1, 1.0)]), min_size=1, unique=True
    ),
    gaps=st.lists(st.sampled_from([0.0, 0.01, 0.3, 1.0, 2.9, 15.0, 61.0]), min_size=1, max_size=200),
)
def test_no_window_holds_more_than_its_limit(limits: list[Limit], gaps: list[float]) -> None:
    state: dict[str, tuple[float, float]] = {}
    now, sent = NOW, []
    for gap in gaps:
        now += gap
        if take(tuple(limits), state, now) == 0.0:
            sent.append(now)
    for limit in limits:
        for first in sent:
            assert sum(first <= moment < first + limit.seconds for moment in sent) <= limit.count


def test_the_wait_is_the_time_until_the_next() -> None:
    state: dict[str, tuple[float, float]] = {}
    limits = (Limit(20, 60.0),)
    taken = sum(take(limits, state, NOW) == 0.0 for _ in range(10))
    wait = take(limits, state, NOW)
    assert taken == 5 and wait == pytest.approx(4.0) and take(limits, state, NOW + wait + 1e-6) == 0.0


def test_a_clock_set_back_grants_nothing() -> None:
    state: dict[str, tuple[float, float]] = {}
    limits = (Limit(1, 60.0),)
    assert take(limits, state, NOW) == 0.0 and take(limits, state, NOW - 1000) > 0
