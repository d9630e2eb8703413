"""A rule judged on what happened after a change alone, however far back its windows look."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from infradoc_rules.catalog import Catalog
from infradoc_rules.engine import evaluate_rules
from infradoc_rules.lifecycle import RuleStates, StateName
from infradoc_rules.model import Event, Fact, Series, SignalFrame
from infradoc_rules.schema import Rule


class FrameSince:
    """A `SignalFrame` without anything from before `begin` (Unix seconds); facts are as they are now."""

    def __init__(self, frame: SignalFrame, begin: float) -> None:
        self._frame = frame
        self._begin = begin
        self._selected: dict[str, Sequence[Series]] = {}

    @property
    def now(self) -> float:
        """Evaluation time, Unix seconds."""
        return self._frame.now

    @property
    def window(self) -> float:
        """`$window` in seconds."""
        return self._frame.window

    @property
    def period(self) -> float:
        """Sampling period in seconds."""
        return self._frame.period

    @property
    def history(self) -> float:
        """Seconds that this part of the frame covers."""
        return max(min(self._frame.history, self._frame.now - self._begin), 0.0)

    @property
    def system(self) -> str | None:
        """The engine that was recognised."""
        return self._frame.system

    @property
    def events(self) -> Sequence[Event]:
        """Events from `begin` on; those without a time cannot be told to be new and are left out."""
        return [event for event in self._frame.events if event.time is not None and event.time >= self._begin]

    @property
    def facts(self) -> Mapping[str, Fact]:
        """Facts by name."""
        return self._frame.facts

    def select(self, name: str) -> Sequence[Series]:
        """Series of one name, samples from `begin` on."""
        found = self._selected.get(name)
        if found is None:
            cut = (self._cut(series) for series in self._frame.select(name))
            found = self._selected[name] = [series for series in cut if len(series.times)]
        return found

    def _cut(self, series: Series) -> Series:
        first = bisect_left(series.times, self._begin)
        return Series(series.name, series.labels, series.times[first:], series.values[first:]) if first else series


class HoldJudge:
    """Follows one rule through a hold that began at `begin` (Unix seconds).

    It says nothing before a whole window lies in the hold: a rate over a second or two is noise.
    """

    def __init__(self, rule: Rule, begin: float) -> None:
        self._catalog = Catalog((rule,))
        self._states = RuleStates()
        self._begin = begin
        self.seen: list[StateName] = []

    def look(self, frame: SignalFrame) -> None:
        """Judge the rule at one moment of the hold."""
        if frame.now - self._begin >= frame.window:
            (result,) = evaluate_rules(self._catalog, FrameSince(frame, self._begin), self._states).results
            self.seen.append(result.state)

    def quiet(self, live: StateName | None) -> bool | None:
        """Whether the rule fired at no look and was not about to at the last one.

        `live` is what the rule said at last with all of the past in view: it stands in for a rule that needs more past
        than a hold has, and for a hold shorter than a window. None when the rule could not be judged at all.
        """
        judged = [state for state in self.seen if state != "unknown"]
        if judged:
            return "firing" not in judged and judged[-1] != "pending"
        return None if live in (None, "unknown") else live not in ("firing", "pending")
