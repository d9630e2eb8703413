"""Signals of one target as lines over time: throughput, queue, KV use and rolling percentiles. Counts, no drawing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from infradoc.signals.percentiles import from_buckets, min_samples, upper_bound
from infradoc_rules.model import Series, SignalFrame

Floats = NDArray[np.float64]
QUANTILES = (0.5, 0.9, 0.99)
WINDOW_SECONDS = 60.0


def gauge(frame: SignalFrame, name: str, begin: float, end: float, largest: bool = False) -> tuple[Floats, Floats]:
    """Times and values in [begin, end) of a gauge: its series added up (or the largest of them)."""
    return merged(frame.select(name), begin, end, np.maximum if largest else np.add)


def merged(
    series: Sequence[Series], begin: float, end: float, merge: Callable[[Floats, Floats], Floats]
) -> tuple[Floats, Floats]:
    """Several series as one on the times of the longest; others count with their last value before each time."""
    parts = [part(one, begin, end) for one in series]
    parts = [one for one in parts if len(one[0])]
    if not parts:
        return np.empty(0), np.empty(0)
    parts.sort(key=lambda one: -len(one[0]))
    times, total = parts[0][0], parts[0][1].copy()
    for other_times, other in parts[1:]:
        if len(other_times) == len(times) and np.array_equal(other_times, times):
            total = merge(total, other)
            continue
        places = np.searchsorted(other_times, times, side="right") - 1
        here = places >= 0
        total[here] = merge(total[here], other[places[here]])
    return times, total


def part(series: Series, begin: float, end: float) -> tuple[Floats, Floats]:
    """Samples in [begin, end); stale markers are left out."""
    times = np.asarray(series.times, dtype=np.float64)
    low, high = np.searchsorted(times, (begin, end), side="left")
    values = np.asarray(series.values, dtype=np.float64)[low:high]
    good = ~np.isnan(values)
    return times[low:high][good], values[good]


def rate(frame: SignalFrame, name: str, begin: float, end: float, smooth: float = 3.0) -> tuple[Floats, Floats]:
    """Growth a second of a counter, all series together, at each sample in [begin, end), over the last `smooth` s."""
    lead = max(4 * frame.period, smooth) + smooth
    grown = [grown_counter(one, begin - lead, end) for one in frame.select(name)]
    pairs = [Series(name, {}, one[0], one[1]) for one in grown if len(one[0])]  # type: ignore[arg-type]
    times, total = merged(pairs, begin - lead, end, np.add)
    if len(times) < 2:
        return np.empty(0), np.empty(0)
    # A counter that is read every second moves in lumps: the growth is taken over a few samples.
    back = np.minimum(np.searchsorted(times, times - smooth, side="left"), np.maximum(np.arange(len(times)) - 1, 0))
    span = times - times[back]
    with np.errstate(invalid="ignore", divide="ignore"):
        values = np.where(span > 0, (total - total[back]) / span, np.nan)
    keep = (times >= begin) & ~np.isnan(values)
    return times[keep], values[keep]


def grown_counter(series: Series, begin: float, end: float) -> tuple[Floats, Floats]:
    """What a counter gained since the first sample of the part; a reset counts from 0."""
    times, values = part(series, begin, end)
    if not len(values):
        return times, values
    steps = np.diff(values, prepend=values[0])
    return times, np.cumsum(np.where(steps >= 0, steps, values))


def rolling(
    frame: SignalFrame, name: str, moments: Floats, window: float = WINDOW_SECONDS
) -> tuple[dict[float, Floats], Floats]:
    """Quantiles of histogram `name` over the `window` seconds before each moment, and the samples behind them.

    NaN where there are too few for the quantile: 100 for a P99.
    """
    values = {q: np.full(len(moments), np.nan) for q in QUANTILES}
    counts: dict[float, Floats] = {}
    if not len(moments):
        return values, np.empty(0)
    for series in frame.select(f"{name}_bucket"):
        bound = upper_bound(series.labels)
        if bound is None:
            continue
        times, total = grown_counter(series, float(moments[0]) - window, float(moments[-1]) + 1e-6)
        gained = np.zeros(len(moments))
        if len(times):
            after = np.maximum(np.searchsorted(times, moments, side="right") - 1, 0)
            before = np.minimum(np.searchsorted(times, moments - window, side="left"), after)
            gained = total[after] - total[before]
        counts[bound] = counts.get(bound, 0.0) + gained
    samples = counts.get(float("inf"), np.zeros(len(moments)))
    bounds = sorted(counts)
    for place in np.flatnonzero(samples >= min_samples(QUANTILES[0])):
        row = {bound: float(counts[bound][place]) for bound in bounds}
        for q in QUANTILES:
            if samples[place] >= min_samples(q):
                found = from_buckets(row, q).value
                values[q][place] = np.nan if found is None else found
    return values, samples
