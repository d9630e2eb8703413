"""A source of GPU rows that looks from a thread of its own, so that a driver that hangs cannot hold the watch.

A driver in trouble may block a call for ever (a GPU that fell off the bus, a reset under way), and no timeout can be
given to it. Whoever reads waits a bounded time instead, goes on without the GPUs, and says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from infradoc.model import Reading
from infradoc.sources.base import RowSource
from infradoc.sources.gpu_rows import silent_sentence
from infradoc.sources.gpu_worker import Worker
from infradoc_rules.model import Event

T = TypeVar("T")
_RETRY_SECONDS = 5.0  # between questions whether there is a GPU at all; the source itself tries more seldom


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds. `open` bounds the first answers: without a persistence daemon the driver first wakes the GPUs.

    `look` bounds each later one: a look takes 2 ms a GPU, and 40 ms more where PCIe rates have to be measured by the
    driver. `silent`: an answer that is later than this is called missing; until then the last rows hold.
    """

    open: float = 5.0
    look: float = 0.5
    silent: float = 3.0


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look gave, taken on the thread so that nobody reads the source while it works."""

    reading: Reading
    row: Mapping[str, Any]
    why: str | None


class ApartSource:
    """Another source, asked on a thread of its own. Reads like the source itself while that answers."""

    interval = 0.0

    def __init__(
        self, source: RowSource, patience: Patience | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = source.name
        self.provides = source.provides
        self.row_file = source.row_file
        self.last_row: dict[str, Any] = {}
        self._source = source
        self._patience = patience or Patience()
        self._clock = clock
        self._worker = Worker(f"infradoc-{source.name}")
        self._opening: Future[tuple[bool, str | None]] | None = None
        self._looking: Future[_Look] | None = None
        self._asked = 0.0  # on the clock, when the call under way began
        self._next_open = float("-inf")
        self._supported = self._closed = False
        self._why: str | None = None
        self._silence = ""
        self._told = float("-inf")  # Unix seconds of the last reading that told of silence
        self._last: Reading | None = None
        self._late: list[Event] = []

    def is_supported(self) -> bool:
        """Whether the source can look. Waits for its first answer, never for a later one."""
        if self._supported or self._closed:
            return self._supported and not self._closed
        if self._opening is None:
            if self._clock() < self._next_open:
                return False
            self._asked = self._clock()
            self._opening = self._worker.run(self._open)
            limit = self._patience.open
        else:
            limit = 0.0
        opened = _within(self._opening, limit)
        if opened is None:
            self._silence = silent_sentence(self.name, self._clock() - self._asked)
            return False
        self._opening, self._silence = None, ""
        self._supported, self._why = opened
        if not self._supported:
            self._next_open = self._clock() + _RETRY_SECONDS
            self._worker.stop()
        return self._supported

    def _open(self) -> tuple[bool, str | None]:
        return self._source.is_supported(), _why(self._source)

    def why_not(self) -> str | None:
        """What cannot be seen and why, as of the last answer; that there is none, while there is none."""
        return self._silence or self._why

    def read(self, now: float) -> Reading:
        """One look, or what is left without its answer: first the last rows once more, then a failed reading."""
        look = self._answer(now)
        if look is not None and look.reading.time <= self._told:
            # Older than the silence that was told: its figures are of the past, its events still happened.
            self._late += look.reading.events
            look = self._answer(now)
        if look is None:
            return self._without(now)
        self._silence, self._why = "", look.why
        self.last_row = dict(look.row)
        reading = look.reading
        if self._late:
            reading = replace(reading, events=[*self._late, *reading.events])
            self._late = []
        self._last = replace(reading, events=[], facts=[])
        return reading

    def _answer(self, now: float) -> _Look | None:
        """The look that is under way, or a new one if there is none; None when it does not end in time."""
        if self._looking is None:
            self._asked = self._clock()
            self._looking = self._worker.run(lambda: self._look(now))
            limit = self._patience.look if self._last is not None else self._patience.open
        else:
            limit = 0.0  # it had its time at an earlier tick
        look = _within(self._looking, limit)
        if look is not None:
            self._looking = None
        return look

    def _look(self, now: float) -> _Look:
        reading = self._source.read(now)
        return _Look(reading, self._source.last_row, _why(self._source))

    def _without(self, now: float) -> Reading:
        """The last reading once more, which adds nothing; when the answer is too late for that, a failed one."""
        waited = self._clock() - self._asked
        if self._last is not None and waited < self._patience.silent and not self._silence:
            self.last_row = {}
            return self._last
        self._silence, self._told = silent_sentence(self.name, waited), now
        self.last_row = {"t": round(now, 3), "source": self.name, "gpus": [], "silent": round(waited, 1)}
        return Reading(self.name, now, error=self._silence)

    def close(self) -> None:
        """Give the library back; a driver that does not answer keeps it, and the thread ends when it does."""
        if self._closed:
            return
        self._closed = True
        waiting = self._opening or self._looking
        closing = self._worker.run(self._source.close)
        self._worker.stop()
        if waiting is None or waiting.done():
            _within(closing, self._patience.open)


def _within(future: Future[T], seconds: float) -> T | None:
    """The value of a call, None when it does not come in time. Raises what the call raised."""
    try:
        return future.result(timeout=seconds)
    except TimeoutError:
        if future.done():  # the call itself raised one
            raise
        return None


def _why(source: RowSource) -> str | None:
    explain = getattr(source, "why_not", None)
    return None if explain is None else explain()
