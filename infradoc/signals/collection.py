"""The series of one target by name and labels: each in a table with those of the same look or, if need be, alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from infradoc.model import Sample
from infradoc.signals.ring import Ring
from infradoc.signals.table import Labels, Row, SeriesKey, Table
from infradoc_rules.promql import STALE_NAN

Listed = tuple[dict[str, str], Row | Ring]
Place = TypeVar("Place", Row, Ring)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which series a source showed last, in which order, and their rows."""

    keys: list[SeriesKey]
    rows: NDArray[np.intp]

    def fits(self, samples: Sequence[Sample]) -> bool:
        """Whether these are the same series in the same order, all of one moment."""
        return (
            len(samples) == len(self.keys)
            and self.keys == [(sample.name, sample.labels) for sample in samples]
            and len({sample.time for sample in samples}) == 1
        )


class Collection:
    """Holds samples of at most `limit` series, the newest `samples` of each.

    A series keeps the samples that it would have in a `Ring` of its own. It is in its source's table while it has one
    at every look of that source; when it vanishes, or another source shows it too, it gets a ring for good.
    """

    def __init__(self, samples: int, limit: int) -> None:
        self.late = 0  # samples that were not later than the newest of their series
        self._by_name: dict[str, dict[Labels, Row | Ring]] = {}
        self._listings: dict[str, list[Listed]] = {}
        self._label_maps: dict[Labels, dict[str, str]] = {}
        self._samples = samples
        self._limit = limit
        self._count = 0
        self._tables: dict[str, Table] = {}
        self._layouts: dict[str, _Layout] = {}
        self._live: dict[str, set[SeriesKey]] = {}

    def add(self, source: str, time: float, samples: Sequence[Sample]) -> int:
        """Store all that `source` showed; what it showed before and does not now is stale. Returns how many it lost."""
        layout, table = self._layouts.get(source), self._table(source)
        if layout is not None and layout.fits(samples) and table.accepts(samples[0].time):
            table.append(samples[0].time, layout.rows, [sample.value for sample in samples])
            return 0
        self._layouts.pop(source, None)
        before = self._live.get(source, set())
        now = self._live[source] = {(sample.name, sample.labels) for sample in samples}
        if len({sample.time for sample in samples}) == 1 and table.accepts(samples[0].time):
            self._mark_stale(before - now, time)
            return self._add_column(source, table, samples)
        lost = sum(not self._add_apart(sample, table) for sample in samples)
        self._mark_stale(before - now, time)
        return lost

    def _add_column(self, source: str, table: Table, samples: Sequence[Sample]) -> int:
        column: dict[int, float] = {}
        lost = 0
        for sample in samples:
            place = self._place(sample.name, sample.labels)
            if place is None and self._count >= self._limit:
                lost += 1
                continue
            if place is None:
                self._count += 1
                place = self._put(sample.name, sample.labels, table.new_row(_key(sample)))
            if not isinstance(place, Row) or not place.of(table):
                self.late += not self._ring(*_key(sample)).append(sample.time, sample.value)
            elif place.index in column:
                self.late += 1
            else:
                column[place.index] = sample.value
        for row in table.rows:
            if row.index not in column:  # shown before a failed look, and not since
                self._ring(*row.key)
        rows = np.fromiter(column, dtype=np.intp, count=len(column))
        table.append(samples[0].time, rows, list(column.values()))
        if len(column) == len(samples):
            self._layouts[source] = _Layout([_key(sample) for sample in samples], rows)
        return lost

    def _add_apart(self, sample: Sample, table: Table) -> bool:
        place = self._place(sample.name, sample.labels)
        if isinstance(place, Row) and place.of(table) and not table.accepts(sample.time):
            self.late += 1
            return True
        return self.append(sample.name, sample.labels, sample.time, sample.value)

    def append(self, name: str, labels: Labels, time: float, value: float) -> bool:
        """Store one sample that came alone; False when its series is one too many."""
        if self._place(name, labels) is None:
            if self._count >= self._limit:
                return False
            self._put(name, labels, Ring(self._samples))
            self._count += 1
        self.late += not self._ring(name, labels).append(time, value)
        return True

    def fail(self, source: str, time: float) -> None:
        """A look that failed: all that `source` showed before is stale."""
        live, table = self._live.pop(source, set()), self._table(source)
        self._layouts.pop(source, None)
        rows = table.rows
        if rows and table.accepts(time) and live.issuperset(row.key for row in rows):
            table.append(time, [row.index for row in rows], STALE_NAN)
            live -= {row.key for row in rows}
        self._mark_stale(live, time)

    @property
    def names(self) -> frozenset[str]:
        """Names of series that have samples."""
        return frozenset(self._by_name)

    def listing(self, name: str) -> list[Listed]:
        """Labels and place of each series of a name, in order of appearance."""
        listed = self._listings.get(name)
        if listed is None:
            places = self._by_name.get(name, {}).items()
            listed = [(self._label_maps.setdefault(labels, dict(labels)), place) for labels, place in places]
            self._listings[name] = listed
        return listed

    def _mark_stale(self, keys: Iterable[SeriesKey], time: float) -> None:
        for name, labels in keys:
            if self._place(name, labels) is not None:
                self._ring(name, labels).append(time, STALE_NAN)

    def _table(self, source: str) -> Table:
        return self._tables.setdefault(source, Table(self._samples))

    def _place(self, name: str, labels: Labels) -> Row | Ring | None:
        return self._by_name.get(name, {}).get(labels)

    def _ring(self, name: str, labels: Labels) -> Ring:
        """The ring of a known series; one that was in a table leaves it."""
        place = self._by_name[name][labels]
        if isinstance(place, Row):
            place = self._put(name, labels, place.release())
            self._layouts.clear()
        return place

    def _put(self, name: str, labels: Labels, place: Place) -> Place:
        self._by_name.setdefault(name, {})[labels] = place
        self._listings.pop(name, None)
        return place


def _key(sample: Sample) -> SeriesKey:
    return sample.name, sample.labels
