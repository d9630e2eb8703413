"""Percentiles from buckets: right within their bucket, with the number of samples, honest about missing ones."""

from __future__ import annotations

import bisect
import math

from hypothesis import given
from hypothesis import strategies as st

from infradoc.model import Reading, Sample
from infradoc.signals.percentiles import from_buckets, min_samples, percentile
from infradoc.signals.store import Store

BOUNDS = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, math.inf]


def cumulative(values: list[float]) -> dict[float, float]:
    ordered = sorted(values)
    return {bound: float(bisect.bisect_right(ordered, bound)) for bound in BOUNDS}


@given(st.lists(st.floats(0.0, 4.9), min_size=1, max_size=300), st.sampled_from([0.5, 0.9, 0.99]))
def test_lies_in_the_bucket_of_the_true_quantile(values: list[float], quantile: float) -> None:
    found = from_buckets(cumulative(values), quantile)
    truth = sorted(values)[max(0, math.ceil(quantile * len(values) - 1e-9) - 1)]
    place = bisect.bisect_left(BOUNDS, truth)
    low = BOUNDS[place - 1] if place else 0.0
    assert found.n == len(values)
    assert found.value is not None and low - 1e-9 <= found.value <= BOUNDS[place] + 1e-9


def test_nothing_seen_and_open_bucket() -> None:
    assert from_buckets({}, 0.5).value is None
    assert from_buckets(cumulative([]), 0.5).value is None
    assert from_buckets(cumulative([100.0]), 0.5).value == 5.0
    assert from_buckets({0.1: 3.0}, 0.5).value is None


def test_counts_only_the_window_and_survives_a_reset() -> None:
    store = Store()
    totals = {0: 50, 10: 50, 20: 60, 30: 5, 40: 9}  # a restart between 20 and 30
    for time, total in totals.items():
        labels = [("0.5", total), ("+Inf", total)]
        samples = [Sample("x_seconds_bucket", (("le", le),), float(time), count) for le, count in labels]
        store.add(Reading("metrics", float(time), samples))
    assert percentile(store.frame(40.0), "x_seconds", 0.5, 15.0).n == 4
    assert percentile(store.frame(40.0), "x_seconds", 0.5, 25.0).n == 9
    assert percentile(store.frame(40.0), "x_seconds", 0.5, 100.0).n == 19
    assert percentile(store.frame(40.0), "y_seconds", 0.5, 100.0).n == 0


def test_series_are_pooled_or_matched() -> None:
    store = Store()
    for time, scale in ((0.0, 0), (10.0, 1)):
        samples = [
            Sample("x_seconds_bucket", (("class", kind), ("le", le)), time, scale * count)
            for kind, le, count in (("chat", "1", 10), ("chat", "+Inf", 10), ("doc", "1", 0), ("doc", "+Inf", 30))
        ]
        store.add(Reading("client", time, samples))
    frame = store.frame(10.0)
    assert percentile(frame, "x_seconds", 0.5, 20.0).n == 40
    chat = percentile(frame, "x_seconds", 0.5, 20.0, lambda labels: labels["class"] == "chat")
    assert (chat.n, chat.value) == (10, 0.5)


def test_needed_samples() -> None:
    assert (min_samples(0.99), min_samples(0.9), min_samples(0.5)) == (100, 10, 5)
