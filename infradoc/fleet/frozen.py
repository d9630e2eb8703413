"""The series that one drawing needs, taken out of the store in a moment, so that the work on them needs no lock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from infradoc_rules.model import Event, Fact, Series, SignalFrame


@dataclass(frozen=True, slots=True)
class Frozen:
    """A `SignalFrame` of named series only; all others read as no data."""

    now: float
    window: float
    period: float
    history: float
    system: str | None
    events: Sequence[Event]
    facts: Mapping[str, Fact]
    series: Mapping[str, Sequence[Series]]

    def select(self, name: str) -> Sequence[Series]:
        """The series of a name that was frozen."""
        return self.series.get(name, ())


def freeze(frame: SignalFrame, names: Iterable[str]) -> Frozen:
    """Take these names out of a frame. The arrays are views that stay valid, so nothing is copied."""
    series = {name: tuple(frame.select(name)) for name in names}
    return Frozen(frame.now, frame.window, frame.period, frame.history, frame.system, (), dict(frame.facts), series)
