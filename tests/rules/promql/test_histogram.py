"""histogram_quantile."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_rules.promql import PromqlError
from infradoc_rules.promql.histogram import bucket_quantile, histogram_quantile, parse_bound
from infradoc_rules.promql.vector import Sample

INF = math.inf


def test_linear_within_a_bucket() -> None:
    buckets = [(1.0, 10.0), (2.0, 30.0), (INF, 40.0)]
    assert bucket_quantile(0.5, buckets) == 1.5
    assert bucket_quantile(0.125, buckets) == 0.5  # the lowest bucket starts at 0
    assert bucket_quantile(0.99, buckets) == 2.0  # in +Inf: the highest finite bound
    assert bucket_quantile(0.1, [(-1.0, 10.0), (INF, 40.0)]) == -1.0


@pytest.mark.parametrize(
    "buckets", [[(INF, 5.0)], [(1.0, 5.0), (2.0, 6.0)], [(1.0, 0.0), (INF, 0.0)]], ids=["one", "no +Inf", "empty"]
)
def test_no_answer(buckets: list[tuple[float, float]]) -> None:
    assert math.isnan(bucket_quantile(0.5, buckets))


def test_q_outside_its_range() -> None:
    buckets = [(1.0, 1.0), (INF, 1.0)]
    assert bucket_quantile(-0.1, buckets) == -INF
    assert bucket_quantile(1.1, buckets) == INF
    assert math.isnan(bucket_quantile(math.nan, buckets))


def test_decreasing_counts_are_lifted_and_equal_bounds_added() -> None:
    assert bucket_quantile(0.5, [(1.0, 10.0), (2.0, 8.0), (INF, 20.0)]) == 1.0
    assert bucket_quantile(0.5, [(2.0, 5.0), (1.0, 0.0), (2.0, 5.0), (INF, 10.0)]) == 1.5


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.5", 0.5), ("+Inf", INF), ("1e-3", 0.001), ("1_0", 10.0), ("", None), (" 1", None), ("x", None), ("NaN", None)],
)
def test_bounds(text: str, value: float | None) -> None:
    assert parse_bound(text) == value


def test_histograms_are_told_apart_by_their_other_labels() -> None:
    vector = [
        Sample("h", {"le": le, "job": job}, count)
        for job, counts in (("a", (0.0, 10.0)), ("b", (10.0, 10.0)))
        for le, count in zip(("1", "+Inf"), counts, strict=True)
    ]
    vector.append(Sample("h", {"job": "c"}, 3.0))
    result = histogram_quantile(0.5, vector)
    assert result == [Sample("", {"job": "a"}, 1.0), Sample("", {"job": "b"}, 0.5)]


def test_two_names_with_the_same_labels_clash() -> None:
    vector = [Sample(name, {"le": "+Inf"}, 1.0) for name in ("h", "i")]
    with pytest.raises(PromqlError, match="same labelset"):
        histogram_quantile(0.5, vector)


BUCKETS = st.lists(st.tuples(st.floats(0.001, 1e6), st.integers(0, 1000)), min_size=1, max_size=20).map(
    lambda rows: [(bound, float(count)) for bound, count in rows] + [(INF, 1001.0)]
)


@given(BUCKETS, st.floats(0, 1), st.floats(0, 1))
def test_within_the_bounds_and_monotone_in_q(buckets: list[tuple[float, float]], q: float, r: float) -> None:
    low, high = bucket_quantile(min(q, r), buckets), bucket_quantile(max(q, r), buckets)
    highest = max(bound for bound, _ in buckets if bound != INF)
    for value in (low, high):
        assert math.isnan(value) or 0 <= value <= highest * (1 + 1e-12)
    if not math.isnan(low):
        assert low <= high * (1 + 1e-9)
