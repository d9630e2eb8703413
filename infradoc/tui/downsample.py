"""Many samples to few columns without losing a peak: each column keeps the lowest and the highest value in it.

Columns lie on a grid fixed in time (column i covers [i * step, (i + 1) * step)), so that a column which is over never
changes and is computed once: drawing a frame then costs as much as the panel is wide, whatever lies behind it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_NICE = (0.5, 0.75, 1, 1.5, 2, 3, 4, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600)
_KEPT = 8192


@dataclass(frozen=True, slots=True)
class Axis:
    """`width` columns of `step` seconds; `first` is the number of the leftmost on the fixed grid."""

    first: int
    step: float
    width: int

    @property
    def start(self) -> float:
        """Unix seconds at the left edge."""
        return self.first * self.step

    @property
    def end(self) -> float:
        """Unix seconds at the right edge."""
        return (self.first + self.width) * self.step

    def column(self, time: float) -> int | None:
        """The column of a moment; None outside."""
        place = math.floor(time / self.step) - self.first
        return place if 0 <= place < self.width else None


def axis_for(begin: float, end: float, width: int, period: float = 1.0) -> Axis:
    """The finest grid of nice steps, at least half a period, on which `width` columns up to `end` reach to `begin`."""
    width = max(1, width)
    wanted = max((end - begin) / width, 0.0)
    steps = (period * nice for nice in _NICE)
    step = next((one for one in steps if one * (width - 1) >= end - begin), None)
    if step is None:
        step = period * math.ceil(wanted * width / max(1, width - 1) / period)
    return Axis(math.floor(end / step) - width + 1, step, width)


def minmax(times: Floats, values: Floats, first: int, step: float, width: int) -> tuple[Floats, Floats]:
    """Lowest and highest value of each of `width` columns from number `first` on; NaN where there is no sample.

    `times` ascend; NaN values are left out.
    """
    low, high = np.full(width, np.nan), np.full(width, np.nan)
    good = ~np.isnan(values)
    times, values = times[good], values[good]
    places = np.floor(times / step).astype(np.int64) - first
    inside = (places >= 0) & (places < width)
    places, values = places[inside], values[inside]
    if not len(values):
        return low, high
    starts = np.flatnonzero(np.diff(places, prepend=-1))
    low[places[starts]] = np.minimum.reduceat(values, starts)
    high[places[starts]] = np.maximum.reduceat(values, starts)
    return low, high


# Computes columns [first, first + count) of a line: (low, high).
Compute = Callable[[int, int], tuple[Floats, Floats]]


@dataclass(slots=True)
class ColumnCache:
    """Columns that are over, by line and step. `computed` counts columns that had to be worked out."""

    computed: int = 0
    _kept: dict[tuple[str, float], dict[int, tuple[float, float]]] = field(default_factory=dict)

    def columns(self, key: str, axis: Axis, now: float, compute: Compute) -> tuple[Floats, Floats]:
        """Low and high of each column of `axis`; what lies after `now` is NaN, the column of `now` is always fresh."""
        kept = self._kept.setdefault((key, axis.step), {})
        low, high = np.full(axis.width, np.nan), np.full(axis.width, np.nan)
        last = min(math.floor(now / axis.step) - axis.first, axis.width - 1)
        begin = 0
        while begin <= last and (known := kept.get(axis.first + begin)) is not None and begin < last:
            low[begin], high[begin] = known
            begin += 1
        if begin > last:
            return low, high
        count = last - begin + 1
        low[begin : last + 1], high[begin : last + 1] = compute(axis.first + begin, count)
        self.computed += count
        if len(kept) > _KEPT:
            kept.clear()
        for place in range(begin, last):
            kept[axis.first + place] = (float(low[place]), float(high[place]))
        return low, high
