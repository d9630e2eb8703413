"""Samples of a selector at one moment, by binary search; history is never copied, only the window is.

Prometheus counts in integer milliseconds. A range selector takes [t - range, t] with both ends (2.x), an instant
selector the last sample of the 300 s before t. A stale marker ends a series and is no sample of a range.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from infradoc_rules.model import Series
from infradoc_rules.promql.nodes import Selector
from infradoc_rules.promql.vector import Labels, Sample, Vector

LOOKBACK_MS = 300_000
STALE_BITS = 0x7FF0000000000002
_STALE_PACKED = struct.pack("<Q", STALE_BITS)
STALE_NAN: float = struct.unpack("<d", _STALE_PACKED)[0]


class Selectable(Protocol):
    """What evaluation needs of a SignalFrame."""

    def select(self, name: str) -> Sequence[Series]:
        """All series of one metric; times strictly increasing, in Unix seconds."""


class Window(NamedTuple):
    """A series' samples in a range: times in ms (whole numbers), values; at least one, no stale markers."""

    labels: Labels
    times: list[float]
    values: list[float]


def is_stale(value: float) -> bool:
    """Whether `value` is the stale marker; any other NaN is a measurement."""
    return value != value and struct.pack("<d", value) == _STALE_PACKED


def to_ms(seconds: float) -> int:
    """Unix seconds as Prometheus' integer milliseconds."""
    return round(seconds * 1000)


def matching_series(selector: Selector, frame: Selectable) -> Sequence[Series]:
    """Series of the selector's metric whose labels pass all its matchers."""
    if not selector.matchers:
        return frame.select(selector.name)
    memo: dict[object, Sequence[Series]] | None = getattr(frame, "memo", None)
    if memo is None:
        return _matching(selector, frame)
    key = (selector.name, selector.matchers)
    series = memo.get(key)
    if series is None:
        series = memo[key] = _matching(selector, frame)
    return series


def _matching(selector: Selector, frame: Selectable) -> Sequence[Series]:
    series = frame.select(selector.name)
    for matcher in selector.matchers:
        label, accepts = matcher.label, matcher.accepts
        series = [one for one in series if accepts(one.labels.get(label, ""))]
    return series


def instant(selector: Selector, frame: Selectable, now_ms: int) -> Vector:
    """The selector's instant vector at `now_ms`."""
    return [sample for sample, _ in instant_with_times(selector, frame, now_ms)]


def instant_with_times(selector: Selector, frame: Selectable, now_ms: int) -> list[tuple[Sample, float]]:
    """Like `instant`, each sample with its own time in ms."""
    at_ms = now_ms - selector.offset_ms
    found = []
    for series in matching_series(selector, frame):
        index = _count_until(series.times, at_ms) - 1
        if index < 0:
            continue
        time_ms = to_ms(float(series.times[index]))
        if time_ms < at_ms - LOOKBACK_MS:
            continue
        value = float(series.values[index])
        if not is_stale(value):
            found.append((Sample(selector.name, present(series.labels), value), float(time_ms)))
    return found


def windows(selector: Selector, frame: Selectable, now_ms: int) -> list[Window]:
    """The selector's range vector at `now_ms`: series without a sample in the range are left out."""
    end_ms = now_ms - selector.offset_ms
    start_ms = end_ms - (selector.range_ms or 0)
    result = []
    last: _Cut | None = None
    memo: dict[object, _Cut] = getattr(frame, "memo", {})
    for series in matching_series(selector, frame):
        # Series of one scrape have the same times, and cutting them costs more than everything else done here.
        if last is None or not last.fits(series.times):
            last = _cut(series.times, start_ms, end_ms, memo)
        low, high, times = last.low, last.high, last.times_ms
        if low < high:
            window = _without_stale(present(series.labels), times, _plain(series.values[low:high]))
            if window.values:
                result.append(window)
    return result


def _cut(times: Sequence[float], start_ms: int, end_ms: int, memo: dict[object, _Cut]) -> _Cut:
    """The cut of an array of times, made once a frame; the array lives as long as the cut that is found by its id."""
    key = (id(times), start_ms, end_ms)
    found = memo.get(key)
    if found is None:
        found = memo[key] = _Cut(times, start_ms, end_ms)
    return found


class _Cut:
    """Where a range begins and ends in one array of times."""

    def __init__(self, times: Sequence[float], start_ms: int, end_ms: int) -> None:
        self.low, self.high = _count_until(times, start_ms - 1), _count_until(times, end_ms)
        self._source, self._count = times, len(times)
        # With a neighbour on each side: what they say about the edges holds for another array that has them, too.
        self._around = slice(max(self.low - 1, 0), self.high + 1)
        self._near = _plain(times[self._around])
        self.times_ms = [float(to_ms(time)) for time in _plain(times[self.low : self.high])]

    def fits(self, times: Sequence[float]) -> bool:
        """Whether another series has the very same times in the range and next to it, at the same places."""
        if times is self._source:
            return True
        return len(times) == self._count and _plain(times[self._around]) == self._near


def present(labels: Labels) -> Labels:
    """Labels without empty ones, which are absent labels in PromQL."""
    return {key: text for key, text in labels.items() if text} if "" in labels.values() else labels


def _plain(numbers: Sequence[float]) -> list[float]:
    tolist = getattr(numbers, "tolist", None)  # numpy's, without importing numpy for a mere `rules list`
    result: list[float] = list(map(float, numbers)) if tolist is None else tolist()
    return result


def _without_stale(labels: Labels, times: list[float], values: list[float]) -> Window:
    if math.isfinite(sum(values)) or not any(map(is_stale, values)):
        return Window(labels, times, values)
    kept = [(time, value) for time, value in zip(times, values, strict=True) if not is_stale(value)]
    return Window(labels, [time for time, _ in kept], [value for _, value in kept])


def _count_until(times: Sequence[float], end_ms: int) -> int:
    """How many samples have a time of `end_ms` or before, judged in whole milliseconds."""
    count = len(times)
    if count and to_ms(float(times[-1])) <= end_ms:
        return count  # the usual case: the window ends at the newest sample
    # One ms to spare on the side of too many: seconds in float64 are coarser than the rounding edge at half a ms.
    count = bisect_right(times, (end_ms + 1) / 1000)
    while count and to_ms(float(times[count - 1])) > end_ms:
        count -= 1
    return count
