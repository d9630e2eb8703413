"""Everything known about one target: series, events, facts and change marks, in bounded memory.

Absent is "no data": a series that a source no longer shows, or whose source failed, gets a stale marker (the NaN that
Prometheus uses), so that an old gauge is never taken for a present one. Counter resets are left to the evaluator.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from infradoc.model import Reading, Sample
from infradoc.signals.collection import Collection
from infradoc.signals.frame import StoreFrame
from infradoc.signals.ring import Ring
from infradoc.signals.table import Labels
from infradoc.signals.twins import Twins
from infradoc_rules.model import Event, Fact, Series, Value
from infradoc_rules.signals import family

# What runs now beats what was asked for at the start: a command line cannot overwrite what the server itself says.
FACT_RANK = {"launch": 0, "log": 1, "host": 1, "client": 1, "metrics": 2, "admin": 3}


@dataclass(frozen=True, slots=True)
class ChangeMark:
    """A fact that took another value at `time` (Unix seconds)."""

    time: float
    name: str
    before: Value
    after: Value


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one store. Worst case about samples x series x 32 bytes."""

    samples_per_series: int = 1200
    series: int = 5000
    events: int = 20_000
    marks: int = 1000


class Store:
    """Collects readings of one target; `frame()` gives the read-only view that rules look at."""

    def __init__(self, system: str | None = None, period: float = 1.0, limits: Limits | None = None) -> None:
        self.system = system
        self.version: str | None = None
        self.period = period
        self.limits = limits or Limits()
        self.provides: frozenset[str] | None = None
        self.facts: dict[str, Fact] = {}
        self.events: deque[Event] = deque(maxlen=self.limits.events)
        self.marks: deque[ChangeMark] = deque(maxlen=self.limits.marks)
        self.dropped_series = 0  # most that one reading showed beyond the limit
        self._series = Collection(self.limits.samples_per_series, self.limits.series)
        self._last_good: dict[str, float] = {}
        self._errors: dict[str, str] = {}
        self._family_times: dict[str, Ring] = {}
        self._fact_rank: dict[str, int] = {}
        self._twins = Twins()

    # --- in ---------------------------------------------------------------------------------------------------------

    def add(self, reading: Reading) -> None:
        """Take in what one source gave; a failed reading makes that source's series stale."""
        source, time = reading.source, reading.time
        if reading.error is None:
            self._errors.pop(source, None)
            self._add_samples(source, time, reading.samples)
            self._last_good[source] = time
        else:
            self._errors[source] = reading.error
            self._series.fail(source, time)
        self.events.extend(self._twins.once(source, reading.events) if reading.events else ())
        self._add_facts(reading.facts, source, time)
        self._add_health(reading)

    def provide(self, names: Iterable[str]) -> None:
        """Name canonical signals that some source of this target can give at all (see `absent_reads_zero`)."""
        self.provides = (self.provides or frozenset()) | frozenset(names)

    def _add_samples(self, source: str, time: float, samples: Sequence[Sample]) -> None:
        self.dropped_series = max(self.dropped_series, self._series.add(source, time, samples))
        for prefix in {family(name) for name in {sample.name for sample in samples}}:
            ring = self._family_times.get(prefix)
            if ring is None:
                ring = self._family_times[prefix] = Ring(self.limits.samples_per_series)
            ring.append(time, 0.0)

    def _add_facts(self, facts: Sequence[Fact], source: str, time: float) -> None:
        rank = FACT_RANK.get(source, 1)
        for fact in facts:
            if rank < self._fact_rank.get(fact.name, 0):
                continue
            self._fact_rank[fact.name] = rank
            old = self.facts.get(fact.name)
            if old is not None and old.value != fact.value:
                self.marks.append(ChangeMark(time, fact.name, old.value, fact.value))
            self.facts[fact.name] = fact
            if fact.name == "target.system":
                self.system = str(fact.value)
            elif fact.name == "target.version":
                self.version = str(fact.value)

    def _add_health(self, reading: Reading) -> None:
        labels: Labels = (("source", reading.source),)
        self._series.append("target_up", labels, reading.time, 0.0 if reading.error else 1.0)
        if reading.error is None:
            self._series.append("target_scrape_seconds", labels, reading.time, reading.seconds)
        last = self._last_good.get(reading.source)
        if last is not None:
            self._series.append("target_sample_age_seconds", labels, reading.time, reading.time - last)

    # --- out --------------------------------------------------------------------------------------------------------

    @property
    def names(self) -> frozenset[str]:
        """Series names that have samples."""
        return self._series.names

    @property
    def late_samples(self) -> int:
        """Samples that were left out because they were not later than the newest of their series."""
        return self._series.late

    @property
    def errors(self) -> Mapping[str, str]:
        """The present fault of each source that failed at its last look, as one sentence."""
        return dict(self._errors)

    @property
    def sources(self) -> Mapping[str, float]:
        """Time of the last good look of each source that ever succeeded."""
        return dict(self._last_good)

    def series(self, name: str, until: float) -> list[Series]:
        """All series of one name with samples up to `until`."""
        found = []
        for labels, place in self._series.listing(name):
            times, values = place.view(until)
            if len(times):
                found.append(Series(name, labels, times, values))
        return found

    def look_times(self, until: float) -> list[float]:
        """Times of the looks of the source that looked most often, failed ones included."""
        looks = [place.view(until)[0] for _, place in self._series.listing("target_up")]
        return [float(time) for time in max(looks, key=len, default=())]

    def first_look(self) -> float | None:
        """Time of the oldest look that is still kept; None before the first one."""
        looks = [place.view(math.inf)[0] for _, place in self._series.listing("target_up")]
        return min((float(times[0]) for times in looks if len(times)), default=None)

    def zero_series(self, name: str, until: float) -> Series | None:
        """A series that is 0 at every look at the family of `name`; None when the family was never seen."""
        ring = self._family_times.get(family(name))
        times: Sequence[float] = ring.view(until)[0] if ring is not None else ()
        if not len(times):
            return None
        zeros: Sequence[float] = np.zeros(len(times))  # type: ignore[assignment]
        return Series(name, {}, times, zeros)

    def frame(self, now: float, window: float | None = None) -> StoreFrame:
        """The view at `now` (Unix seconds); `window` is `$window` in seconds, by default the one for this period."""
        return StoreFrame(self, now, window)
