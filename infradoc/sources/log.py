"""A server's log as typed events and facts: the growing file of a live server, and the files of recordings."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from infradoc.model import Reading
from infradoc.sources.tail import FileTail
from infradoc_rules.model import Event, Fact
from infradoc_rules.patterns import SYSTEMS, LogScanner, Scan, detect, scan

PROVIDES = frozenset({"log_event_total", "log_value"})
# A start-up log is read for its facts; of a long one the middle is left out.
_HEAD_BYTES = 1 << 20
_TAIL_BYTES = 4 << 20
_DETECT_LINES = 400
_OFFSET = re.compile(r"^(\d+)\.(\d\d)\.(\d{3})\.(\d{3}) ")


def scan_recorded(lines: Iterable[bytes], source: str, system: str | None, times: Sequence[float]) -> Scan:
    """All events of a recorded log. `times` are those of the recording's scrapes (Unix seconds, may be empty).

    Stamps without a year take the recording's, in UTC. Stamps that count from the server's start are hung on the end:
    the last line is taken to be as old as the last scrape, which is late by the quiet time before it at most.
    """
    texts = [line.decode("utf-8", errors="replace") for line in lines]
    known = system if system in SYSTEMS else None
    year = datetime.fromtimestamp(times[-1], UTC).year if times else None
    newest = last_offset(texts)
    start = times[-1] - newest if times and newest is not None else None
    return scan(texts, known, source, year=year, start=start)


def last_offset(lines: Sequence[str]) -> float | None:
    """Seconds since the server's start of the last line that says so (llama.cpp's mm.ss.ms.us); None without one."""
    for line in reversed(lines):
        found = _OFFSET.match(line)
        if found is not None:
            minutes, seconds, millis, micros = (int(part) for part in found.groups())
            return 60 * minutes + seconds + millis / 1e3 + micros / 1e6
    return None


class LogSource:
    """Follows a log file. Lines without a time of their own count as written when they were first seen."""

    name = "log"
    interval = 0.0
    provides = PROVIDES

    def __init__(self, path: Path, system: str | None = None) -> None:
        self._path = path
        self._tail = FileTail(path, head_bytes=_HEAD_BYTES, tail_bytes=_TAIL_BYTES)
        self._system = system if system in SYSTEMS else None
        self._scanner: LogScanner | None = None
        self._waiting: list[str] = []
        self._fresh = False
        self.new_lines: list[str] = []

    def is_supported(self) -> bool:
        """Whether the file is there."""
        return self._path.is_file()

    def why_not(self) -> str | None:
        """A phrase for the report when the file is missing."""
        return None if self.is_supported() else f"there is no file {self._path}"

    @property
    def unparsed_lines(self) -> int:
        """Lines that no pattern knew."""
        return self._scanner.unparsed if self._scanner else len(self._waiting)

    def written_by(self, system: str | None) -> None:
        """Tell the engine where something else knows it, such as its metrics page: its banner may be long gone."""
        if self._system is None and system in SYSTEMS:
            self._system = system

    def read(self, now: float) -> Reading:
        """Events of the lines written since the last look."""
        started = time.monotonic()
        try:
            self.new_lines = [line.decode("utf-8", errors="replace") for line in self._lines()]
        except OSError as error:
            self.new_lines = []
            return Reading(self.name, now, error=self._fault(error))
        # What was there before the first look happened some time ago: only its own stamps can say when.
        seen_at = now if self._fresh else None
        self._fresh = True
        events: list[Event] = []
        for line in self._ready(self.new_lines):
            assert self._scanner is not None
            events += self._scanner.feed(line, seen_at)
        facts: list[Fact] = list(self._scanner.facts.values()) if self._scanner else []
        seconds = time.monotonic() - started
        return Reading(self.name, now, events=events, facts=facts, seconds=seconds, error=self._trouble())

    def _lines(self) -> list[bytes]:
        """The lines that came since the last look. Raises OSError."""
        return self._tail.lines()

    def _fault(self, error: OSError) -> str:
        return f"The log file {self._path} cannot be read: {error.strerror}."

    def _trouble(self) -> str | None:
        """What is wrong although lines may have come."""
        return None

    def _ready(self, lines: list[str]) -> list[str]:
        """Lines that can be scanned: none until the engine that writes them is recognised."""
        if self._scanner is not None:
            return lines
        self._waiting += lines
        system = self._system or detect(self._waiting)
        if system is None:
            del self._waiting[:-_DETECT_LINES]
            return []
        local = time.localtime()
        self._scanner = LogScanner(system, self._path.name, year=local.tm_year, utc_offset=local.tm_gmtoff)
        ready, self._waiting = self._waiting, []
        return ready

    def close(self) -> None:
        """Nothing is held open."""
