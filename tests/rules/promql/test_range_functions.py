"""Functions over a range, by hand and by property."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_rules.promql.range_functions import RANGE_FUNCTIONS, Range

GROWTH = st.lists(st.floats(0, 1e6), min_size=2, max_size=30)
VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


def over(name: str, values: list[float], step: float = 1.0, before: float = 0.0, after: float = 0.0) -> float | None:
    """The function over samples `step` seconds apart, the range starting `before` and ending `after` them."""
    times = [1000.0 * step * place for place in range(len(values))]
    span = Range(round(-1000 * before), round(times[-1] + 1000 * after), 0.5)
    return RANGE_FUNCTIONS[name](times, values, span)


def test_rate_by_hand() -> None:
    assert over("rate", [0, 10, 20]) == 10
    assert over("increase", [0, 10, 3]) == 13  # a reset: 10, then 3 from zero
    assert over("delta", [0, 10, 3]) == 3
    assert over("irate", [0, 10, 3], step=2) == 1.5
    assert over("idelta", [0, 10, 3]) == -7
    assert over("resets", [5, 3, 4, 1, math.nan, 2]) == 2
    assert over("changes", [1, 1, 2, math.nan, math.nan, 2]) == 3
    assert over("deriv", [1, 3, 5], step=0.5) == pytest.approx(4)


def test_growth_is_stretched_to_near_edges_and_half_a_gap_to_far_ones() -> None:
    assert over("delta", [100, 110, 120], before=1, after=1) == 40
    assert over("delta", [100, 110, 120], before=5, after=1) == 35
    assert over("increase", [100, 110, 120], before=5, after=5) == 30


def test_a_counter_is_not_stretched_below_zero() -> None:
    assert over("increase", [5, 15, 25], before=1) == 25
    assert over("delta", [5, 15, 25], before=1) == 30


@pytest.mark.parametrize("name", ["rate", "increase", "delta", "irate", "idelta", "deriv"])
def test_one_sample_gives_no_growth(name: str) -> None:
    assert over(name, [1.0]) is None


def test_nan_in_a_range() -> None:
    assert over("min_over_time", [math.nan, 2, 1]) == 1
    assert over("max_over_time", [1, math.nan, 2]) == 2
    for name in ("avg_over_time", "sum_over_time", "rate", "stdvar_over_time"):
        result = over(name, [1.0, math.nan, 2.0] if name != "rate" else [1.0, 2.0, math.nan])
        assert result is not None and math.isnan(result)
    assert over("avg_over_time", [math.inf, 1, 2]) == math.inf
    assert math.isnan(over("deriv", [math.inf, math.inf]) or 0.0)


@given(GROWTH, st.floats(0, 60), st.floats(0, 60))
def test_a_monotone_counter_never_falls(steps: list[float], before: float, after: float) -> None:
    values = [sum(steps[: place + 1]) for place in range(len(steps))]
    rate, increase = over("rate", values, 1.0, before, after), over("increase", values, 1.0, before, after)
    assert rate is not None and increase is not None
    assert rate >= 0
    assert increase >= (values[-1] - values[0]) * (1 - 1e-9)
    assert over("resets", values) == 0


@given(GROWTH)
def test_resets_never_give_a_negative_increase(values: list[float]) -> None:
    increase = over("increase", values)
    assert increase is not None and increase >= 0


@given(GROWTH, GROWTH)
def test_increases_of_adjoining_ranges_add_up(first: list[float], second: list[float]) -> None:
    values = first + second
    total = over("increase", values)
    parts = [over("increase", first), over("increase", [first[-1], second[0]]), over("increase", second)]
    assert total is not None
    assert total == pytest.approx(math.fsum(part or 0.0 for part in parts), rel=1e-9, abs=1e-6)


@given(VALUES)
def test_statistics_are_those_of_the_definition(values: list[float]) -> None:
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / len(values)
    expected = {
        "avg_over_time": mean,
        "sum_over_time": math.fsum(values),
        "min_over_time": min(values),
        "max_over_time": max(values),
        "count_over_time": len(values),
        "last_over_time": values[-1],
        "present_over_time": 1,
        "stdvar_over_time": variance,
        "stddev_over_time": math.sqrt(variance),
    }
    for name, value in expected.items():
        assert over(name, values) == pytest.approx(value, rel=1e-6, abs=1e-3 if name.startswith("std") else 1e-9), name


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), st.integers(2, 30))
def test_deriv_finds_the_slope_of_a_line(start: float, slope: float, count: int) -> None:
    result = over("deriv", [start + slope * place for place in range(count)])
    assert result == pytest.approx(slope, rel=1e-6, abs=1e-6)
