"""What a live target's log tells of something that broke, read as a post-mortem reads it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from infradoc.model import Reading
from infradoc.signals.store import Store
from infradoc_rules.fatal import END_SERVICE
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.model import Event
from infradoc_rules.summaries import summarise

KEPT_SECONDS = 600.0  # long enough to be seen and told; what is broken for longer keeps writing lines
_MOST_EVENTS = 5_000


class Incidents:
    """Follows the events of one target and holds the latest incident; adds it up only when something new was told.

    What a source gave at its first look stood there before the watch began, and the server has answered since: it is
    left out. Events count by when they were seen, because the clock and zone of a log are its own.
    """

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=_MOST_EVENTS)
        self._known: set[str] = set()
        self._began: float | None = None
        self._broke: float | None = None
        self._stale = False
        self._frame: MemoryFrame | None = None

    def take(self, readings: Sequence[Reading], now: float) -> None:
        """Take in the events of one tick at `now` (Unix seconds)."""
        self._began = now if self._began is None else self._began
        for reading in readings:
            if reading.source not in self._known:
                self._known.add(reading.source)
            elif reading.events:
                self._events.extend(reading.events)
                self._stale = True
                if any(event.name in END_SERVICE for event in reading.events):
                    self._broke = now

    def frame(self, store: Store, now: float) -> MemoryFrame | None:
        """The events and the facts that they add up to; None when nothing broke in the last ten minutes."""
        if self._broke is None or now - self._broke > KEPT_SECONDS:
            return None
        if self._stale or self._frame is None:
            told = _of_a_server_that_answered(self._events, self._began)
            facts = summarise(told, store.facts, store.system)
            self._frame = MemoryFrame.build((), events=told, facts=facts.values(), system=store.system, now=now)
            self._stale = False
        return replace(self._frame, now=now)


def _of_a_server_that_answered(events: Sequence[Event], since: float | None) -> list[Event]:
    """Until a new start is told, all of it happened while serving, whatever phase a log seems in that is read from its
    end."""
    told = [Event("engine_ready", min(event.order for event in events) - 1, {}, since, "serving")]
    started = False
    for event in events:
        started = started or event.name == "launched"
        told.append(event if started else replace(event, phase="serving"))
    return told
