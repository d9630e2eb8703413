"""Series that one source shows together: one axis of times for all of them, one row of values each.

A page has hundreds of series and all of them have a sample at every look. Kept apart, each had its own copy of the same
times, and storing and reading them one by one took a quarter of a tick.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from infradoc.signals.ring import Floats, Ring, until_index

Labels = tuple[tuple[str, str], ...]
SeriesKey = tuple[str, Labels]

_FIRST_COLUMNS = 64
_FIRST_ROWS = 16


class Row:
    """One series of a table, to be looked at as a `Ring` is."""

    __slots__ = ("_table", "first", "index", "key")

    def __init__(self, table: Table, key: SeriesKey, index: int, first: int) -> None:
        self._table = table
        self.key = key
        self.index = index
        self.first = first  # column of its first sample

    def of(self, table: Table) -> bool:
        """Whether it is a row of that table."""
        return self._table is table

    def view(self, until: float) -> tuple[Sequence[float], Sequence[float]]:
        """As `Ring.view`."""
        return self._table.view(self, until)

    def release(self) -> Ring:
        """The samples in a ring, for a series that goes another way than the rest; the row is no longer in use."""
        return self._table.release(self)


class Table:
    """Append-only columns; keeps the newest `limit`. Every row has a value in every column from its first one on.

    Views given out stay valid for ever: a column is written once, and arrays are replaced when room runs out.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._start = 0
        self._end = 0
        self._times: Floats = np.empty(_FIRST_COLUMNS, dtype=np.float64)
        self._values: Floats = np.empty((_FIRST_ROWS, _FIRST_COLUMNS), dtype=np.float64)
        self._rows: dict[int, Row] = {}
        self._unused: list[int] = list(range(_FIRST_ROWS))
        self._shown: tuple[float, int, int, dict[int, Floats]] | None = None

    @property
    def rows(self) -> list[Row]:
        """Rows in use."""
        return list(self._rows.values())

    def new_row(self, key: SeriesKey) -> Row:
        """A row that begins with the next column."""
        if not self._unused:
            old = len(self._values)
            self._values = np.concatenate([self._values, np.empty((old, len(self._times)))])
            self._unused = list(range(old, 2 * old))
        row = Row(self, key, self._unused.pop(), self._end)
        self._rows[row.index] = row
        return row

    def accepts(self, time: float) -> bool:
        """Whether `time` is later than the newest column."""
        return self._end == self._start or time > self._times[self._end - 1]

    def append(self, time: float, rows: Sequence[int] | NDArray[np.intp], values: Sequence[float] | float) -> None:
        """Add a column. `rows` are the indices of all rows in use, in any order; `time` must be one that it accepts."""
        if self._end == len(self._times):
            self._make_room()
        self._times[self._end] = time
        self._values[rows, self._end] = values
        self._end += 1
        self._start = max(self._start, self._end - self._limit)
        self._shown = None

    def _make_room(self) -> None:
        kept = self._end - self._start
        size = min(max(2 * kept, _FIRST_COLUMNS), self._limit + max(_FIRST_COLUMNS, self._limit // 4))
        times, values = np.empty(size), np.empty((len(self._values), size))
        times[:kept] = self._times[self._start : self._end]
        values[:, :kept] = self._values[:, self._start : self._end]
        for row in self._rows.values():
            row.first = max(0, row.first - self._start)
        self._times, self._values, self._start, self._end = times, values, 0, kept

    def view(self, row: Row, until: float) -> tuple[Sequence[float], Sequence[float]]:
        """Times and values of a row up to and including `until`, oldest first, without copying.

        Rows of equal span get one and the same array of times: who cuts it needs to do so only once.
        """
        shown = self._shown
        if shown is None or shown[0] != until:
            shown = self._shown = (until, self._start, until_index(self._times, self._start, self._end, until), {})
        _, start, end, axes = shown
        if row.first > start:
            start = row.first
        axis = axes.get(start)
        if axis is None:
            axis = axes[start] = self._times[start:end]
        return axis, self._values[row.index, start:end]  # type: ignore[return-value]

    def release(self, row: Row) -> Ring:
        """See `Row.release`."""
        ring = Ring.of(self._limit, *self.view(row, math.inf))
        del self._rows[row.index]
        self._unused.append(row.index)
        return ring
