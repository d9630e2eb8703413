"""From what a tick tells to marks on the time axis."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from infradoc.fleet.model import Mark
from infradoc.monitor.events import FindingOpened, FindingResolved, MonitorEvent, SourceFailed, SourceRecovered
from infradoc.remediation.journal import ChangeRecord
from infradoc.signals.store import ChangeMark

_KEPT = 1000
_QUIET = ("hint.", "target.", "kv.leaked")  # facts that move by themselves: no one changed a setting


class Marks:
    """Collects marks of one target, at most `_KEPT`. Not thread-safe: the watcher's lock guards it."""

    def __init__(self) -> None:
        self._marks: deque[Mark] = deque(maxlen=_KEPT)
        self._settings: ChangeMark | None = None
        self._fixes: set[tuple[str, str]] = set()

    def add_events(self, events: Iterable[MonitorEvent]) -> None:
        """Findings that opened and resolved; the server that was lost and came back."""
        for event in events:
            mark = mark_of(event)
            if mark is not None:
                self._marks.append(mark)

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
            moves = ", ".join(f"{knob} {old} -> {new}" for knob, old, new in change.intent.moves)
            word = "undo" if change.last.kind == "undone" else "fix"
            self._marks.append(Mark(change.last.time, "fix", change.intent.change, f"{word}: {moves}"))

    def all(self, until: float | None = None) -> tuple[Mark, ...]:
        """All marks up to `until`, by time."""
        kept = (mark for mark in self._marks if until is None or mark.time <= until)
        return tuple(sorted(kept, key=lambda mark: mark.time))


def mark_of(event: MonitorEvent) -> Mark | None:
    """The mark of one event; None for sources other than the server's page."""
    if isinstance(event, FindingOpened):
        finding = event.finding
        return Mark(event.time, "finding", finding.id, finding.title, finding.severity)
    if isinstance(event, FindingResolved):
        return Mark(event.time, "resolved", event.finding.id, event.finding.title, event.finding.severity)
    if isinstance(event, SourceFailed) and event.source == "metrics":
        return Mark(event.time, "lost", "metrics", event.error, "warning")
    if isinstance(event, SourceRecovered) and event.source == "metrics":
        return Mark(event.time, "back", "metrics", "")
    return None
