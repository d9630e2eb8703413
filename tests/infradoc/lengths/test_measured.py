"""Quantiles of what was seen, and bounds that hold however prompts and outputs go together."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.lengths.files import add_row
from infradoc.lengths.measured import Bounds, Measured, bucket_above, nearest_rank, token_count

EDGES = (16.0, 64.0, 256.0, 1024.0, 4096.0, math.inf)
PAIRS = st.lists(st.tuples(st.integers(1, 4096), st.integers(1, 4096)), min_size=100, max_size=300)


def cumulative(values: list[int]) -> dict[float, float]:
    return {edge: float(sum(value <= edge for value in values)) for edge in EDGES}


@given(PAIRS, st.sampled_from((0.5, 0.9, 0.99)))
def test_the_bound_from_histograms_is_never_below_the_truth(pairs, quantile):
    rows = Measured("rows")
    for prompt, output in pairs:
        rows.add(prompt, output)
    buckets = Bounds(cumulative([p for p, _ in pairs]), cumulative([o for _, o in pairs]))
    assert buckets.n == rows.n == len(pairs)
    assert buckets.total(quantile) >= rows.total_quantile(quantile)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_nearest_rank_covers_the_asked_share_with_a_value_that_was_seen(values, quantile):
    found = nearest_rank(values, quantile)
    assert found in values
    assert sum(value <= found for value in values) >= quantile * len(values) - 1e-6
    smaller = [value for value in values if value < found]
    assert len(smaller) < quantile * len(values)


def test_no_p99_from_fewer_than_100_requests():
    found = Measured("rows")
    for _ in range(99):
        found.add(10, 5)
    assert found.total_quantile(0.99) is None
    assert found.total_quantile(0.9) == 15
    found.add(10, 6)
    assert found.total_quantile(0.99) == 15
    assert found.longest() == 16
    assert found.above(15) == 1


def test_a_rank_in_the_open_bucket_has_no_bound():
    assert bucket_above({10.0: 5.0, math.inf: 10.0}, 0.9) is None
    assert bucket_above({10.0: 9.0, math.inf: 10.0}, 0.9) == 10.0
    assert bucket_above({}, 0.9) is None
    assert Bounds({10.0: 200.0, math.inf: 200.0}, {10.0: 0.0, math.inf: 200.0}).total(0.5) is None


@pytest.mark.parametrize("total", [None, 7])
def test_a_row_without_parts_counts_by_its_total_or_is_skipped(total):
    found = Measured("rows")
    found.add(3, None, total)
    assert (found.n, found.skipped) == ((0, 1) if total is None else (1, 0))


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (7, 7),
        (7.0, 7),
        ("7", 7),
        (0, 0),
        ("2147483647", 2**31 - 1),
        (2**31, None),
        ("2147483648", None),
        ("9" * 5000, None),
        (7.5, None),
        (-1, None),
        ("-1", None),
        (float("nan"), None),
        (float("inf"), None),
        (True, None),
        (None, None),
        ([7], None),
        ("seven", None),
    ],
)
def test_a_number_of_tokens_is_the_same_wherever_it_comes_from(value, count):
    assert token_count(value) == count
    row = Measured("file")
    add_row(row, {"prompt_tokens": value, "completion_tokens": 0})
    assert row.totals == ([] if count is None else [count])
