"""Plain looks at series inside a window: last value, and growth of a counter. For reports and vitals, not for rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from infradoc_rules.model import Series, SignalFrame

Match = Callable[[Mapping[str, str]], bool]


def last_values(frame: SignalFrame, name: str, max_age: float | None = None) -> list[tuple[Mapping[str, str], float]]:
    """The newest value of each series of `name`; stale ones and those older than `max_age` seconds are left out."""
    age = max_age if max_age is not None else max(5 * frame.period, 5.0)
    found = []
    for series in frame.select(name):
        if not len(series.values):
            continue
        value, time = float(series.values[-1]), float(series.times[-1])
        if math.isnan(value) or frame.now - time > age:
            continue
        found.append((series.labels, value))
    return found


def last_total(frame: SignalFrame, name: str) -> float | None:
    """The newest values of all series of `name` added up; None when there is none."""
    values = [value for _, value in last_values(frame, name)]
    return float(sum(values)) if values else None


def increase(series: Series, start: float, end: float) -> float:
    """Growth of a counter between two moments, resets counted from 0. 0.0 with fewer than two samples.

    Unlike PromQL's `increase` it does not extrapolate: the result is what was really counted between two samples.
    """
    times = np.asarray(series.times, dtype=np.float64)
    values = np.asarray(series.values, dtype=np.float64)
    low = max(int(np.searchsorted(times, start, side="left")), 0)
    high = int(np.searchsorted(times, end, side="right"))
    part = values[low:high]
    part = part[np.isfinite(part)]  # a counter that says +Inf says nothing
    if len(part) < 2:
        return 0.0
    steps = np.diff(part)
    return float(np.where(steps >= 0, steps, part[1:]).sum())
