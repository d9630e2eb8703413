"""The read-only view of a store at one moment: what a rule may look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from infradoc_rules.model import Event, Fact, Series, SignalFrame
from infradoc_rules.signals import absent_reads_zero
from infradoc_rules.views import VIEW_NAMES, view

if TYPE_CHECKING:
    from infradoc.signals.store import Store

MIN_PERIODS = 4
MIN_WINDOW_SECONDS = 10.0


def window_for(period: float) -> float:
    """`$window` for a source sampled every `period` seconds: at least 4 periods, and 10 s."""
    return max(MIN_WINDOW_SECONDS, MIN_PERIODS * period)


class StoreFrame:
    """A `SignalFrame` over a store. Selections are kept, because many rules ask for the same names."""

    def __init__(self, store: Store, now: float, window: float | None = None) -> None:
        self._store = store
        self._now = now
        self._window = window if window is not None else window_for(store.period)
        self._selected: dict[str, Sequence[Series]] = {}
        self._events: Sequence[Event] | None = None
        self.incident: SignalFrame | None = None  # what the target's log tells of something that broke
        self.memo: dict[object, object] = {}  # of the evaluator: what several rules ask is computed once

    @property
    def now(self) -> float:
        """Evaluation time, Unix seconds."""
        return self._now

    @property
    def window(self) -> float:
        """`$window` in seconds."""
        return self._window

    @property
    def period(self) -> float:
        """Sampling period in seconds."""
        return self._store.period

    @cached_property  # every rule asks
    def history(self) -> float:
        """Seconds from the first look until now."""
        first = self._store.first_look()
        return max(self._now - first, 0.0) if first is not None else 0.0

    @property
    def system(self) -> str | None:
        """The engine that was recognised."""
        return self._store.system

    @property
    def events(self) -> Sequence[Event]:
        """Events in the order they came."""
        if self._events is None:
            self._events = tuple(self._store.events)
        return self._events

    @property
    def facts(self) -> Mapping[str, Fact]:
        """Facts by name."""
        return self._store.facts

    def select(self, name: str) -> Sequence[Series]:
        """All series of a canonical name up to `now`; zero for counters that wait for their first increment."""
        found = self._selected.get(name)
        if found is None:
            found = self._select(name)
            self._selected[name] = found
        return found

    def _select(self, name: str) -> Sequence[Series]:
        series: Sequence[Series] = self._store.series(name, self._now)
        if not series and name in VIEW_NAMES:
            series = view(name, self.events, self.facts, self._store.look_times(self._now))
        if series or not absent_reads_zero(name, self._store.names, self._store.provides):
            return series
        zero = self._store.zero_series(name, self._now)
        return [zero] if zero is not None else []
