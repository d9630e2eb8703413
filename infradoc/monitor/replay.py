"""Runs a recording through the flow, tick by tick, at its own times."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from infradoc.monitor.loop import Evaluator, Tick
from infradoc.signals.store import Store
from infradoc.sources.recording import Recording
from infradoc.sources.rows import row_time
from infradoc_rules.catalog import Catalog

_DEFAULT_PERIOD = 1.0
_LONGEST_PERIOD = 3600.0  # times that lie further apart are damage; windows of so many seconds cannot be written down


class Replay:
    """One recording and what the rules made of it. `last` is None when the recording held no tick."""

    def __init__(self, path: Path, catalog: Catalog, lang: str = "en") -> None:
        self.recording = Recording(path)
        self.store = Store()
        self.evaluator = Evaluator(self.store, catalog, lang)
        self.last: Tick | None = None
        self.first_time: float | None = None

    def run(self, since: float | None = None, until: float | None = None) -> None:
        """Replay all ticks in [since, until] (Unix seconds)."""
        self.store.period = sampling_period(self.recording)
        for tick in self.recording.ticks(since, until):
            self.store.provide(self.recording.provides)
            self.last = self.evaluator.feed(tick.readings, tick.now)
            if self.first_time is None:
                self.first_time = tick.now

    @property
    def seconds(self) -> float:
        """Span of time that was replayed."""
        if self.last is None or self.first_time is None:
            return 0.0
        return self.last.now - self.first_time


def sampling_period(recording: Recording, looks: int = 20) -> float:
    """The median distance of the first scrapes in seconds; 1 s when it cannot be told, an hour at most."""
    times: list[float] = []
    for row in recording.rows("scrapes.jsonl.gz"):
        time = row_time(row)
        if time is not None:
            times.append(time)
        if len(times) > looks:
            break
    gaps = sorted(later - earlier for earlier, later in pairwise(times) if later > earlier)
    return min(round(gaps[len(gaps) // 2], 3), _LONGEST_PERIOD) if gaps else _DEFAULT_PERIOD
