from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.load.stats import Distribution, percentile, samples_needed, shown

seconds = st.floats(0, 1e4, allow_nan=False)


@pytest.mark.parametrize(("q", "needed"), [(0.5, 2), (0.9, 10), (0.99, 100), (0.999, 1000), (0.01, 100)])
def test_samples_needed(q: float, needed: int) -> None:
    assert samples_needed(q) == needed


@pytest.mark.parametrize("q", [0.0, 1.0, -1.0, 99.0])
def test_a_quantile_outside_the_range_is_refused(q: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        samples_needed(q)


def test_p99_needs_a_hundred_samples() -> None:
    assert Distribution.of([1.0] * 99).p99 is None
    assert Distribution.of([1.0] * 100).p99 == 1.0
    assert shown(None, 99, 0.99) == "n<100"


@given(st.lists(seconds, min_size=2, max_size=300))
def test_percentile_agrees_with_the_standard_library(samples: list[float]) -> None:
    cuts = statistics.quantiles(samples, n=100, method="inclusive")
    for q in (50, 90, 99):
        value = percentile(sorted(samples), q / 100)
        if len(samples) < samples_needed(q / 100):
            assert value is None
        else:
            assert value == pytest.approx(cuts[q - 1])


@given(st.lists(seconds, max_size=150))
def test_a_distribution_is_ordered(samples: list[float]) -> None:
    d = Distribution.of(samples)
    assert d.n == len(samples)
    known = [value for value in (d.p50, d.p90, d.p99, d.max) if value is not None]
    assert known == sorted(known)
