"""Which samples a selector takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_rules.model import Series
from infradoc_rules.promql import STALE_NAN, evaluate, is_stale, parse
from infradoc_rules.promql.nodes import Selector
from infradoc_rules.promql.selectors import instant, windows

T = 1_700_000_000.0
Make = Callable[..., Any]


def a(times: list[float], values: list[float], **labels: str) -> Series:
    return Series("a", labels, [T + at for at in times], values)


def taken(frame: Any, range_ms: int, at: float, offset_ms: int = 0) -> list[float]:
    found = windows(Selector("a", (), range_ms, offset_ms), frame, round(at * 1000))
    return found[0].values if found else []


def test_a_range_holds_both_its_ends(make_frame: Make) -> None:
    frame = make_frame(a([0, 1, 2, 3], [10, 11, 12, 13]))
    assert taken(frame, 2000, T + 3) == [11, 12, 13]
    assert taken(frame, 2000, T + 3.001) == [12, 13]
    assert taken(frame, 1000, T + 3, offset_ms=1000) == [11, 12]
    assert taken(frame, 1000, T, offset_ms=-1000) == [10, 11]
    assert taken(frame, 1000, T - 1) == [10] * 0


def test_times_are_taken_to_the_millisecond(make_frame: Make) -> None:
    frame = make_frame(a([0.0004, 0.9996, 1.0006], [1, 2, 3]))
    assert taken(frame, 1000, T + 1.0004) == [1, 2]


def test_instant_looks_back_five_minutes(make_frame: Make) -> None:
    frame = make_frame(a([0], [5]))
    selector = Selector("a")
    assert instant(selector, frame, round(T * 1000) - 1) == []
    assert [s.value for s in instant(selector, frame, round((T + 300) * 1000))] == [5]
    assert instant(selector, frame, round((T + 300.001) * 1000)) == []


def test_a_stale_marker_ends_a_series_and_other_nan_do_not(make_frame: Make) -> None:
    frame = make_frame(a([0, 1, 2, 3], [1, STALE_NAN, math.nan, STALE_NAN]))
    assert evaluate(parse("a"), frame, T + 1) == ()
    assert [math.isnan(e.value) for e in evaluate(parse("a"), frame, T + 2)] == [True]  # type: ignore[union-attr]
    assert evaluate(parse("a"), frame, T + 3) == ()
    assert [v == v for v in taken(frame, 3000, T + 3)] == [True, False]
    assert taken(frame, 0, T + 1) == []


@pytest.mark.parametrize("value", [math.nan, -math.nan, np.float64("nan"), 0.0, math.inf])
def test_only_the_marker_is_stale(value: float) -> None:
    assert not is_stale(value)
    assert is_stale(STALE_NAN)
    assert is_stale(np.array([STALE_NAN])[0])


def test_matchers_see_an_absent_label_as_empty(make_frame: Make) -> None:
    frame = make_frame(a([0], [1], x="one", empty=""), a([0], [2], y="two"))
    values = {
        'a{x=""}': [2],
        'a{x!=""}': [1],
        'a{x=~"o.*|z"}': [1],
        'a{x=~"o"}': [],
        'a{x!~"one"}': [2],
        'a{empty=""}': [1, 2],
        'a{x=~".*",y="two"}': [2],
    }
    for text, expected in values.items():
        assert [e.value for e in evaluate(parse(text), frame, T)] == expected  # type: ignore[union-attr]
    assert evaluate(parse('a{x="one"}'), frame, T) == (({"__name__": "a", "x": "one"}, 1.0),)


@given(
    st.lists(st.integers(0, 5000), min_size=1, max_size=40, unique=True).map(sorted),
    st.integers(-100, 5500),
    st.integers(0, 3000),
    st.booleans(),
)
def test_binary_search_agrees_with_a_scan(make_frame: Make, ms: list[int], at: int, span: int, as_array: bool) -> None:
    times: Any = [T + each / 1000 for each in ms]
    values: Any = [float(each) for each in ms]
    if as_array:
        times, values = np.array(times), np.array(values)
    frame = make_frame(Series("a", {}, times, values))
    assert taken(frame, span, T + at / 1000) == [each for each in ms if at - span <= each <= at]
    last = [each for each in ms if each <= at][-1:]
    assert [s.value for s in instant(Selector("a"), frame, round((T + at / 1000) * 1000))] == last
