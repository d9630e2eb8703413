"""A SignalFrame held in memory: for cases files, tests and one-shot readings; the agent's store is its twin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from infradoc_rules.model import Event, Fact, Series
from infradoc_rules.signals import absent_reads_zero
from infradoc_rules.views import VIEW_NAMES, view


@dataclass(frozen=True)
class MemoryFrame:
    """One target at one moment.

    provides: canonical signals that the target's map can give (`SignalMap.provides`); None = not known.
    times: scrape times; taken from the series when empty.
    """

    now: float
    series: Mapping[str, Sequence[Series]] = field(default_factory=dict)
    events: Sequence[Event] = ()
    facts: Mapping[str, Fact] = field(default_factory=dict)
    window: float = 10.0
    period: float = 1.0
    system: str | None = None
    provides: frozenset[str] | None = None

    @classmethod
    def build(
        cls,
        series: Iterable[Series] = (),
        *,
        now: float | None = None,
        events: Iterable[Event] = (),
        facts: Iterable[Fact] = (),
        window: float = 10.0,
        period: float = 1.0,
        system: str | None = None,
        provides: frozenset[str] | None = None,
    ) -> MemoryFrame:
        """A frame of loose series, events and facts; `now` defaults to the newest sample."""
        by_name: dict[str, list[Series]] = {}
        for one in series:
            by_name.setdefault(one.name, []).append(one)
        newest = max((one.times[-1] for group in by_name.values() for one in group if len(one.times)), default=0.0)
        return cls(
            now=newest if now is None else now,
            series=by_name,
            events=tuple(sorted(events, key=lambda event: event.order)),
            facts={fact.name: fact for fact in facts},
            window=window,
            period=period,
            system=system,
            provides=provides,
        )

    @cached_property  # every rule asks
    def history(self) -> float:
        """Seconds from the first scrape until now."""
        times = self._scrape_times()
        return self.now - times[0] if len(times) else 0.0

    def at(self, now: float) -> MemoryFrame:
        """The same target as it looked at `now` (Unix seconds): nothing later is visible."""
        events = tuple(event for event in self.events if event.time is None or event.time <= now)
        return replace(self, now=now, events=events)

    def select(self, name: str) -> Sequence[Series]:
        """See SignalFrame.select."""
        found = [cut for one in self.series.get(name, ()) if len((cut := _until(one, self.now)).times)]
        if found:
            return found
        times = self._scrape_times()
        if name in VIEW_NAMES:
            shown = view(name, self.events, self.facts, times)
            if shown or name != "log_event_total" or not self.events:
                return shown
        if len(times) and absent_reads_zero(name, self.series, self.provides):
            return [Series(name, {}, times, [0.0] * len(times))]
        return []

    def _scrape_times(self) -> list[float]:
        """Times of the longest series of the target, up to now."""
        longest: Sequence[float] = max(
            (one.times for group in self.series.values() for one in group), key=len, default=()
        )
        return [time for time in longest if time <= self.now]


def _until(series: Series, now: float) -> Series:
    count = len(series.times)
    while count and series.times[count - 1] > now:
        count -= 1
    return (
        series
        if count == len(series.times)
        else replace(series, times=series.times[:count], values=series.values[:count])
    )
