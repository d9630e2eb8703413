"""Reads a log of any size in bounded memory: batches of lines in, one artefact out.

Nine lines in ten of a busy server's log are access lines that differ in a client's port alone. Once an access line of
the same method, path and code has been read in full and gave nothing but its event, the next ones are told by one
match of Python's `re` (0.3 us) instead of all patterns (6 us). Of an engine's periodic lines, once thousands of them
were read, one in eight is read for its numbers and all are counted.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from infradoc.artefacts.model import Artefact
from infradoc.artefacts.sound import sound_event, sound_facts
from infradoc.artefacts.thin import KEEP, NameThinner, Row, Thinner
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event
from infradoc_rules.patterns.prefix import USUAL
from infradoc_rules.patterns.scanner import TEXT_LIMIT, LogScanner

# Anchored, with bounded repeats: no line takes more than a few hundred steps.
_ACCESS = lazy(r'[^"]{8,90} - "([A-Z]{3,7} /[^\s"]{0,200} HTTP/[\d.]{1,4}" \d{3})[ \w]{0,40}$')


def is_log_line(line: str) -> bool:
    """Whether a line is surely one of a log: an access line, or one under vLLM's or SGLang's prefix."""
    return _ACCESS.match(line) is not None or USUAL.match(line) is not None


_MOST_SHAPES = 1_000
_PER_LINE = 1 << 14  # places in the order that a line (an unpacked record of thousands) may fill with its events
_PERIODIC = ("Avg prompt throughput", "Decode batch")
_SAMPLED = 8  # of the periodic lines in the middle of a long log, one in so many is read


class LogReader:
    """One log, fed in batches. `scanner` holds its phase and facts."""

    def __init__(self, scanner: LogScanner) -> None:
        self.scanner = scanner
        self._thinner = Thinner()
        self._access = self._thinner.of("http_access")
        self._stats: NameThinner | None = None  # of the name of the periodic event
        self._skip = 0
        self._stamps: list[tuple[int, tuple[str, str] | None]] = []  # line number -> stamp from there on

    def feed(self, lines: Sequence[str]) -> None:
        """Read the next lines."""
        scanner, access, known = self.scanner, _ACCESS.match, self._access.known
        first, second = _PERIODIC
        base = scanner.lines + 1
        shapes: list[str] = []
        places: list[int] = []
        count, place = shapes.append, places.append
        for number, line in enumerate(lines, base):
            match = access(line)
            if match is not None:
                shape = match[1]
                if shape in known:
                    count(shape)
                    place(number)
                    continue
            elif self._skip and (first in line or second in line) and not _telling(line):
                self._count(line, number)
                continue
            scanner.lines, scanner.order = number - 1, number * _PER_LINE
            found = scanner.feed(line)
            if found:
                self._take(found, line, match)
                self._stamps.append((number, scanner.stamp))
        scanner.lines = base + len(lines) - 1
        self._keep(shapes, places, lines, base)
        if self._stats is not None:
            self._stats.trim()

    def _keep(self, shapes: Sequence[str], places: Sequence[int], lines: Sequence[str], base: int) -> None:
        """Count the access lines of a batch; only the last of them are kept one by one."""
        kept = min(len(shapes), KEEP)
        if len(shapes) > kept:
            self._access.sum_up_like(shapes[:-kept], places[0] * _PER_LINE)
        late = self._access.late
        for shape, number in zip(shapes[len(shapes) - kept :], places[len(places) - kept :], strict=True):
            line = lines[number - base]
            late.append((shape, number * _PER_LINE, number, line, self._stamp_at(number, line)))
        self._access.trim()
        del self._stamps[:-1]

    def _stamp_at(self, number: int, line: str) -> tuple[str, str] | None:
        """The stamp of an access line: SGLang's own, else that of the last event's line before it."""
        if line[0] == "[":
            return ("full", line[1:20])
        at = bisect_right(self._stamps, number, key=_number_of)
        return self._stamps[at - 1][1] if at else self.scanner.stamp

    def _take(self, found: Sequence[Event], line: str, match: re.Match[str] | None) -> None:
        for event in found:
            if (sound := sound_event(event)) is not None:
                self._thinner.add(sound)
        if len(found) > 1:
            return
        first = found[0]
        if match is not None:
            known = self._access.known
            if first.name == "http_access" and self._access.full and len(known) < _MOST_SHAPES:
                known[match[1]] = first
        elif _PERIODIC[0] in line or _PERIODIC[1] in line:
            held = self._thinner.of(first.name)
            if held.full:
                self._stats, self._skip = held, _SAMPLED - 1
                held.known["periodic"] = first

    def _count(self, line: str, number: int) -> None:
        """A periodic line that is not read now; it may be when it turns out to be among the last."""
        assert self._stats is not None
        self._stats.late.append(("periodic", number * _PER_LINE, number, line, self.scanner.stamp))
        self._skip -= 1

    def artefact(self) -> Artefact:
        """All that was read."""
        scanner = self.scanner
        events = self._thinner.events(self._made)
        facts = sound_facts([*scanner.stated, *scanner.facts.values()])
        return Artefact(events, facts, [], scanner.system, scanner.unparsed)

    def _made(self, row: Row) -> Event:
        shape, order, number, line, stamp = row
        scanner = self.scanner
        place = f"{scanner.source}:{number}"
        if shape != "periodic":
            known = self._access.known[shape]
            return replace(known, order=order, time=scanner.time_of(stamp), source=place, text=line[:TEXT_LIMIT])
        again = LogScanner(scanner.system, scanner.source, scanner.year, phase=scanner.phase)
        read = again.feed(line)
        known = read[0] if read else self._known_periodic()
        return replace(known, order=order, source=place)

    def _known_periodic(self) -> Event:
        assert self._stats is not None
        return self._stats.known["periodic"]


def _number_of(row: tuple[int, tuple[str, str] | None]) -> int:
    return row[0]


def _telling(line: str) -> bool:
    """Whether a periodic line says more than its numbers."""
    return "reempt" in line or "etract" in line or ("Swapped: " in line and "Swapped: 0" not in line)
