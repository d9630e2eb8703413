"""Rolling percentiles from histogram buckets, always with the number of samples behind them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from infradoc.signals.window import Match, increase
from infradoc_rules.model import SignalFrame

# A P99 from fewer samples is the largest value under another name.
MIN_SAMPLES_P99 = 100


@dataclass(frozen=True, slots=True)
class Percentile:
    """`value` is None when there are no samples, or when the rank lies in the open last bucket of no known bound."""

    value: float | None
    n: int


def min_samples(quantile: float) -> int:
    """How many samples a quantile needs before it says something: 100 for a P99, 10 for a P90, 5 for a median."""
    return max(5, math.ceil(1 / (1 - quantile) - 1e-9))


def percentile(
    frame: SignalFrame, name: str, quantile: float, seconds: float | None = None, match: Match | None = None
) -> Percentile:
    """The quantile of histogram `name` over the last `seconds` (default: the frame's window), all series together."""
    span = seconds if seconds is not None else frame.window
    counts: dict[float, float] = {}
    for series in frame.select(f"{name}_bucket"):
        if match is not None and not match(series.labels):
            continue
        bound = upper_bound(series.labels)
        if bound is not None:
            counts[bound] = counts.get(bound, 0.0) + increase(series, frame.now - span, frame.now)
    return from_buckets(counts, quantile)


def from_buckets(cumulative: Mapping[float, float], quantile: float) -> Percentile:
    """Interpolate inside the bucket of the rank. `cumulative` maps upper bounds (with +Inf) to cumulative counts."""
    bounds = sorted(cumulative)
    if not bounds:
        return Percentile(None, 0)
    total = cumulative[bounds[-1]]
    if total <= 0 or not math.isinf(bounds[-1]):
        return Percentile(None, max(0, round(total)))
    rank = quantile * total
    lower, below = 0.0, 0.0
    for bound in bounds:
        count = cumulative[bound]
        if count >= rank:
            if math.isinf(bound):
                return Percentile(lower if len(bounds) > 1 else None, round(total))
            share = (rank - below) / (count - below) if count > below else 1.0
            return Percentile(lower + (bound - lower) * share, round(total))
        lower, below = bound, count
    return Percentile(lower, round(total))


def upper_bound(labels: Mapping[str, str]) -> float | None:
    """The bound of a histogram's bucket; None for labels that are none of a bucket."""
    try:
        return float(labels["le"])
    except (KeyError, ValueError):
        return None
