"""From what a tick tells to marks on the time axis."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime

from infradoc.fleet.model import Mark
from infradoc.monitor.events import FindingOpened, FindingResolved, MonitorEvent, SourceFailed, SourceRecovered
from infradoc.remediation.journal import ChangeRecord
from infradoc.signals.store import ChangeMark
from infradoc_rules.model import Finding

_KEPT = 1000
_QUIET = ("hint.", "target.", "kv.leaked")  # facts that move by themselves: no one changed a setting
# After a server came back its rules need so long to see again what they saw before it was lost.
_PATIENCE_SECONDS = 30.0


class Marks:
    """Collects marks of one target, at most `_KEPT`. Not thread-safe: the watcher's lock guards it."""

    def __init__(self) -> None:
        self._marks: deque[Mark] = deque(maxlen=_KEPT)
        self._settings: ChangeMark | None = None
        self._fixes: set[tuple[str, str]] = set()
        self._is_lost = False
        self._out_of_sight: dict[str, tuple[Finding, float]] = {}  # what nobody could judge since, and from when on
        self._back = float("-inf")

    def add_events(self, events: Sequence[MonitorEvent], now: float, restart: bool = False) -> None:
        """Findings that opened and resolved; the server that was lost, came back, or (`restart`) is another process."""
        for event in sorted(events, key=lambda one: isinstance(one, FindingOpened | FindingResolved)):
            mark = self._mark_of(event)
            if mark is not None:
                self._marks.append(mark)
        if restart:
            self._marks.append(Mark(now, "restart", "process", datetime.fromtimestamp(now).strftime("%H:%M:%S")))
        if self._out_of_sight and not self._is_lost and (restart or now - self._back > _PATIENCE_SECONDS):
            for finding, since in self._out_of_sight.values():
                over = max(since, self._back)
                self._marks.append(Mark(over, "resolved", finding.id, finding.title, finding.severity))
            self._out_of_sight.clear()

    def _mark_of(self, event: MonitorEvent) -> Mark | None:
        """The mark of one event; None for other sources than the page, and for what was only out of sight."""
        if isinstance(event, FindingOpened):
            finding = event.finding
            if self._out_of_sight.pop(finding.id, None) is not None:
                return None
            return Mark(event.time, "finding", finding.id, finding.title, finding.severity)
        if isinstance(event, FindingResolved):
            if self._is_lost or event.time - self._back < _PATIENCE_SECONDS:
                self._out_of_sight[event.finding.id] = (event.finding, event.time)
                return None
            return Mark(event.time, "resolved", event.finding.id, event.finding.title, event.finding.severity)
        return self._mark_of_source(event) if event.source == "metrics" else None

    def _mark_of_source(self, event: SourceFailed | SourceRecovered) -> Mark:
        self._is_lost = isinstance(event, SourceFailed)
        if isinstance(event, SourceFailed):
            return Mark(event.time, "lost", "metrics", event.error, "warning")
        self._back = event.time
        return Mark(event.time, "back", "metrics", "")

    def add_settings(self, marks: Iterable[ChangeMark]) -> None:
        """Facts that took another value since the last call. `marks` are all of them, oldest first."""
        fresh: list[ChangeMark] = []
        for mark in reversed(list(marks)):
            if mark is self._settings:
                break
            fresh.append(mark)
        for mark in reversed(fresh):
            self._settings = mark
            if not mark.name.startswith(_QUIET):
                self._marks.append(Mark(mark.time, "change", mark.name, f"{mark.name} {mark.before} -> {mark.after}"))

    def add_changes(self, changes: Iterable[ChangeRecord]) -> None:
        """What infradoc applied or took back, from the journal."""
        for change in changes:
            key = (change.intent.change, change.last.kind)
            if key in self._fixes or change.last.kind not in ("applied", "undone"):
                continue
            self._fixes.add(key)
            moves = [(old, new) if change.last.kind == "applied" else (new, old) for _, old, new in change.last.moves]
            told = ", ".join(f"{knob[0]} {a} -> {b}" for knob, (a, b) in zip(change.last.moves, moves, strict=True))
            self._marks.append(Mark(change.last.time, "fix", change.intent.change, told))

    def all(self, until: float | None = None) -> tuple[Mark, ...]:
        """All marks up to `until`, by time."""
        kept = (mark for mark in self._marks if until is None or mark.time <= until)
        return tuple(sorted(kept, key=lambda mark: mark.time))
