"""Bounds the events of a long log: the first and last of each name stay, the middle is summed up with exact counts.

A middle event stands for `repeat` alike ones: same name, phase and texts. Its numbers are their means, so `count()` and
`total()` come out as if every event had been kept; its place and time are those of the first one it stands for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter

from infradoc_rules.model import Event, Value

KEEP = 2_000  # events of a name that are kept at each end, and summed up at a time
CELLS = 400  # stretches of the middle that are told apart
_CELL_KEYS = 40  # alike groups in a stretch; beyond that only phase and code are told apart
_EXACT = frozenset({"code", "exit_code", "gpu", "rank", "pid", "generation"})  # numbers that are names
_LOOSE = frozenset({"request", "message", "text", "address", "sample", "functions", "file", "holders", "batch"})

Key = tuple[object, ...]
# An event like one already known, not made yet: the key of that one, order, line number, line, stamp.
Row = tuple[str, int, int, str, tuple[str, str] | None]
Make = Callable[[Row], Event]
_shape: Callable[[Row], str] = itemgetter(0)


@dataclass(slots=True)
class _Group:
    first: Event
    count: int = 0
    measured: int = 0  # of these, how many were read for their numbers
    sums: dict[str, float] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        self.count += event.repeat
        self.measured += event.repeat
        for name, value in event.fields.items():
            if name not in _EXACT and isinstance(value, int | float) and not isinstance(value, bool):
                self.sums[name] = self.sums.get(name, 0.0) + float(value) * event.repeat

    def merge(self, other: _Group) -> None:
        self.count += other.count
        self.measured += other.measured
        for name, value in other.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def event(self) -> Event:
        fields: dict[str, Value] = dict(self.first.fields)
        for name, value in self.sums.items():
            fields[name] = value / self.measured
        return replace(self.first, fields=fields, repeat=self.count)


class Thinner:
    """Takes events in order and gives back at most a few thousand of each name."""

    def __init__(self, keep: int = KEEP, cells: int = CELLS) -> None:
        self.keep, self._cells = keep, cells
        self._names: dict[str, NameThinner] = {}

    def add(self, event: Event) -> None:
        """Take one event."""
        self.of(event.name).add(event)

    def of(self, name: str) -> NameThinner:
        """What is held of one name."""
        held = self._names.get(name)
        if held is None:
            held = self._names[name] = NameThinner(self.keep, self._cells)
        return held

    def events(self, make: Make | None = None) -> list[Event]:
        """All that is kept, in order. `make` turns rows into events."""
        found = [event for held in self._names.values() for event in held.events(make)]
        return sorted(found, key=lambda event: event.order)


class NameThinner:
    """The events of one name. Rows may be appended to `late` while it is `full`; `trim` is due now and then."""

    def __init__(self, keep: int = KEEP, cells: int = CELLS) -> None:
        self._keep, self._most_cells = keep, cells
        self._first: list[Event] = []
        self._middle: list[dict[Key, _Group]] = []
        self._cell: dict[Key, _Group] | None = None
        self._filled, self._width = 0, 1
        self.late: list[Event | Row] = []
        self.known: dict[str, Event] = {}  # key of a row -> the event that it is like

    @property
    def full(self) -> bool:
        """Whether the first ones are all there."""
        return len(self._first) >= self._keep

    def add(self, event: Event) -> None:
        """Take one event."""
        if len(self._first) < self._keep:
            self._first.append(event)
            return
        self.late.append(event)
        if len(self.late) >= 2 * self._keep:
            self.trim()

    def trim(self, held: int | None = None) -> None:
        """Sum up all but the last ones (or no more than `held` of them), a stretch of `keep` at a time."""
        while len(self.late) >= (2 * self._keep if held is None else held + 1):
            leaving = self.late[: self._keep]
            del self.late[: self._keep]
            self._sum_up(leaving)

    def _sum_up(self, leaving: list[Event | Row]) -> None:
        cell = self._next_cell()
        rows = [row for row in leaving if type(row) is tuple]
        if len(rows) < len(leaving):
            for event in leaving:
                if not isinstance(event, tuple):
                    _group(cell, event).add(event)
        firsts = {row[0]: row for row in reversed(rows)}
        for shape, count in Counter(map(_shape, rows)).items():
            first = firsts[shape]
            _group(cell, replace(self.known[shape], order=first[1])).count += count

    def sum_up_like(self, shapes: Mapping[str, int], order: int) -> None:
        """Count events that are like known ones and are not among the last; `order` is the place of the first."""
        cell = self._next_cell()
        for shape, count in shapes.items():
            if count:
                _group(cell, replace(self.known[shape], order=order)).count += count

    def _next_cell(self) -> dict[Key, _Group]:
        if self._cell is None or self._filled >= self._width:
            if len(self._middle) >= self._most_cells:
                self._widen()
            self._cell = {}
            self._middle.append(self._cell)
            self._filled = 0
        self._filled += 1
        return self._cell

    def _widen(self) -> None:
        """Join neighbouring stretches two by two."""
        for left, right in zip(self._middle[::2], self._middle[1::2], strict=False):
            for key, group in right.items():
                if key in left:
                    left[key].merge(group)
                else:
                    left[key] = group
        self._middle, self._width = self._middle[::2], self._width * 2

    def events(self, make: Make | None) -> Iterator[Event]:
        """First, middle, last."""
        yield from self._first
        for cell in self._middle:
            for group in cell.values():
                yield group.event()
        for late in self.late:
            if not isinstance(late, tuple):
                yield late
            elif make is not None:
                yield make(late)


def _group(cell: dict[Key, _Group], event: Event) -> _Group:
    key = _key(event, len(cell) >= _CELL_KEYS)
    group = cell.get(key)
    if group is None:
        group = cell[key] = _Group(event)
    return group


def _key(event: Event, coarse: bool) -> Key:
    if coarse:
        return (event.phase, event.fields.get("code"))
    named = ((name, value) for name, value in event.fields.items() if name not in _LOOSE)
    return (event.phase, *(pair for pair in named if pair[0] in _EXACT or isinstance(pair[1], str | bool)))
