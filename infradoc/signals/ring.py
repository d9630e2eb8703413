"""The newest samples of one series, in memory that does not grow past its limit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_FIRST = 64


class Ring:
    """Append-only times and values; keeps the newest `limit` samples.

    Views given out stay valid for ever: when room runs out the live part is copied into new arrays, and the old ones
    are never written again. A view is therefore contiguous and costs nothing, at the price of up to twice the memory.
    """

    __slots__ = ("_end", "_limit", "_start", "_times", "_values")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._start = 0
        self._end = 0
        self._times: Floats = np.empty(min(_FIRST, 2 * limit), dtype=np.float64)
        self._values: Floats = np.empty_like(self._times)

    @classmethod
    def of(cls, limit: int, times: Sequence[float], values: Sequence[float]) -> Ring:
        """A ring that holds a copy of these samples, at most `limit`."""
        ring = cls(limit)
        ring._times = np.array(times, dtype=np.float64)
        ring._values = np.array(values, dtype=np.float64)
        ring._end = len(ring._times)
        return ring

    def __len__(self) -> int:
        return self._end - self._start

    def append(self, time: float, value: float) -> bool:
        """Add one sample. False, and nothing stored, when `time` is not later than the newest one."""
        end = self._end
        if end > self._start and time <= self._times[end - 1]:
            return False
        if end == len(self._times):
            self._make_room()
            end = self._end
        self._times[end] = time
        self._values[end] = value
        self._end = end + 1
        if self._end - self._start > self._limit:
            self._start += 1
        return True

    def _make_room(self) -> None:
        kept = self._end - self._start
        size = min(max(2 * kept, _FIRST), 2 * self._limit)
        for name in ("_times", "_values"):
            fresh: Floats = np.empty(size, dtype=np.float64)
            fresh[:kept] = getattr(self, name)[self._start : self._end]
            setattr(self, name, fresh)
        self._start, self._end = 0, kept

    def view(self, until: float) -> tuple[Sequence[float], Sequence[float]]:
        """Times and values up to and including `until`, oldest first, without copying."""
        start, end = self._start, self._end
        if end > start and self._times[end - 1] > until:
            end = until_index(self._times, start, end, until)
        return self._times[start:end], self._values[start:end]  # type: ignore[return-value]


def until_index(times: Floats, start: int, end: int, until: float) -> int:
    """The end of the part of times[start:end] that is not later than `until`."""
    return start + int(np.searchsorted(times[start:end], until, side="right"))
