"""Peaks survive, ends survive, and a frame costs as much as the panel is wide."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.tui.downsample import Axis, ColumnCache, axis_for, minmax

values = st.floats(-1e6, 1e6)
gaps = st.floats(0.01, 30.0)
samples = st.lists(st.tuples(gaps, values), min_size=1, max_size=300)


@given(samples, st.sampled_from([0.5, 1.0, 5.0, 60.0]), st.integers(1, 80))
def test_each_column_keeps_its_lowest_and_highest(rows: list[tuple[float, float]], step: float, width: int) -> None:
    times = np.cumsum([gap for gap, _ in rows])
    data = np.array([value for _, value in rows])
    first = math.floor(times[-1] / step) - width + 1
    low, high = minmax(times, data, first, step, width)
    for column in range(width):
        inside = data[np.floor(times / step) == first + column]
        if len(inside):
            assert (low[column], high[column]) == (inside.min(), inside.max())
        else:
            assert np.isnan(low[column]) and np.isnan(high[column])


@given(samples, st.integers(2, 200))
def test_ends_and_extremes_are_on_an_axis_made_for_the_span(rows: list[tuple[float, float]], width: int) -> None:
    times = 1e9 + np.cumsum([gap for gap, _ in rows])
    data = np.array([value for _, value in rows])
    axis = axis_for(float(times[0]), float(times[-1]), width)
    assert axis.width == width and axis.column(float(times[0])) is not None
    assert axis.column(float(times[-1])) == width - 1
    low, high = minmax(times, data, axis.first, axis.step, width)
    assert np.nanmin(low) == data.min() and np.nanmax(high) == data.max()
    assert low[-1] <= data[-1] <= high[-1]


@given(st.lists(values, min_size=1, max_size=50), st.lists(st.booleans(), min_size=50, max_size=50))
def test_stale_markers_are_no_samples(data: list[float], stale: list[bool]) -> None:
    marked = np.array([math.nan if gone else value for value, gone in zip(data, stale, strict=False)])
    low, high = minmax(np.arange(len(data), dtype=float), marked, 0, 1.0, len(data))
    assert np.array_equal(low, marked, equal_nan=True) and np.array_equal(high, marked, equal_nan=True)


@pytest.mark.parametrize("count", [100, 10_000, 100_000])
def test_a_frame_computes_one_column_whatever_lies_behind(count: int) -> None:
    cache, asked = ColumnCache(), []
    times, data = np.arange(count, dtype=float), np.sin(np.arange(count))

    def draw(now: float) -> None:
        axis = axis_for(0.0, float(count + 50), 150)

        def compute(first: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
            asked.append(columns)
            known = times <= now
            return minmax(times[known], data[known], first, axis.step, columns)

        low, high = cache.columns("line", axis, now, compute)
        whole = minmax(times[times <= now], data[times <= now], axis.first, axis.step, axis.width)
        assert np.array_equal(low, whole[0], equal_nan=True) and np.array_equal(high, whole[1], equal_nan=True)

    for second in range(10, -1, -1):
        draw(float(count - second))
    assert asked[0] <= 150 and max(asked[1:]) <= 11


def test_going_back_in_time_shows_nothing_of_later() -> None:
    cache, axis = ColumnCache(), Axis(0, 1.0, 10)
    data = np.arange(10, dtype=float)

    def at(now: float) -> np.ndarray:
        def compute(first: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
            return minmax(data[data <= now], data[data <= now], first, 1.0, columns)

        return cache.columns("line", axis, now, compute)[1]

    assert list(at(9.0)) == list(data)
    early = at(4.0)
    assert list(early[:5]) == [0, 1, 2, 3, 4] and np.isnan(early[5:]).all()
    assert list(at(9.0)) == list(data)
