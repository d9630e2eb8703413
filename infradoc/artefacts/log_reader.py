"""Reads a log of any size in bounded memory: batches of lines in, one artefact out.

Nine lines in ten of a busy server's log are access lines that differ in a client's address alone. Once an access line
of a method, path and code has been read in full and gave nothing but its event, the next ones with the same end are
counted a batch at a time (0.2 us a line) instead of being searched for all patterns (6 us). Of an engine's periodic
lines, once thousands of them were read, one in eight is read for its numbers and all are counted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from infradoc.artefacts.model import Artefact
from infradoc.artefacts.sound import sound_event, sound_facts
from infradoc.artefacts.thin import NameThinner, Row, Thinner
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event
from infradoc_rules.patterns.prefix import USUAL
from infradoc_rules.patterns.scanner import TEXT_LIMIT, LogScanner

# Anchored, with bounded repeats: no line takes more than a few hundred steps.
_ACCESS = lazy(r'[^"]{8,90} - "[A-Z]{3,7} /[^\s"]{0,200} HTTP/[\d.]{1,4}" \d{3}[ \w]{0,40}$')
_REQUEST = ' - "'  # what parts the client of an access line from its request
_CLIENT = 90  # characters of the client's part, the prefix of the line included


def is_log_line(line: str) -> bool:
    """Whether a line is surely one of a log: an access line, or one under vLLM's or SGLang's prefix."""
    return _ACCESS.match(line) is not None or USUAL.match(line) is not None


_MOST_SHAPES = 1_000
_PER_LINE = 1 << 14  # places in the order that a line (an unpacked record of thousands) may fill with its events
_PERIODIC = ("Avg prompt throughput", "Decode batch")
_FIRST_STEP = 4_000  # lines
_SAMPLED = 8  # of the periodic lines in the middle of a long log, one in so many is read


class LogReader:
    """One log, fed in batches. `scanner` holds its phase and facts, `thinner` its events."""

    def __init__(self, scanner: LogScanner, thinner: Thinner | None = None) -> None:
        self.scanner = scanner
        self._thinner = thinner or Thinner()
        self._access = self._thinner.of("http_access")
        self._stats: NameThinner | None = None  # of the name of the periodic event
        self._skip = 0
        self._longest: dict[str, int] = {}  # end of a known access line -> characters that such a line has at most
        # Numbers of a batch's lines with events, the stamp from each on, and the one before the first.
        self._stamped: list[int] = []
        self._stamps: list[tuple[str, str] | None] = []
        self._before = scanner.stamp
        self._tails: deque[_Tail] = deque()  # batches whose access lines may be among the last
        self._held = 0  # access lines in them

    def feed(self, lines: Sequence[str]) -> None:
        """Read the next lines."""
        # Until the first access lines are all there each is read in full, so the batch is cut for the next ones' sake.
        step = _FIRST_STEP if not self._access.full else len(lines)
        for start in range(0, len(lines), max(1, step)):
            self._batch(lines[start : start + step])

    def _batch(self, lines: Sequence[str]) -> None:
        scanner, longest = self.scanner, self._longest.get
        first, second = _PERIODIC
        base = scanner.lines + 1
        ends = [line.partition(_REQUEST)[2] for line in lines]
        # A line end inside is that of a record with several lines, of which each counts.
        others = [index for index, line in enumerate(lines) if len(line) > longest(ends[index], -1) or "\n" in line]
        for index in others:
            line, number = lines[index], base + index
            single = "\n" not in line
            access = single and bool(ends[index]) and _ACCESS.match(line) is not None
            if self._skip and single and not access and (first in line or second in line) and not _telling(line):
                self._count(line, number)
                continue
            scanner.lines, scanner.order = number - 1, number * _PER_LINE
            found = scanner.feed(line)
            if found:
                self._take(found, line, ends[index] if access else "")
                self._stamped.append(number)
                self._stamps.append(scanner.stamp)
        scanner.lines = base + len(lines) - 1
        if len(others) < len(lines):
            known = list(_without(others, len(lines)))
            self._keep(_Tail(lines, ends, known, base, self._stamped, [self._before, *self._stamps]))
        if self._stats is not None:
            self._stats.trim()
        self._before = self._stamps[-1] if self._stamps else self._before
        self._stamped, self._stamps = [], []

    def _keep(self, tail: _Tail) -> None:
        """Hold the access lines of a batch until they are no longer among the last; then they are only counted.

        A batch is held and let go of as a whole: lines kept one by one in between leave the memory in pieces, in which
        the next lines lie so far apart that reading slowed down by a fifth over the first 200 MB.
        """
        keep = self._thinner.keep
        if 2 * len(tail.known) < len(tail.lines):  # a batch that is mostly others is not held for the sake of a few
            self._tails.append(tail)
            self._write_down()
            return
        self._tails.append(tail)
        self._held += len(tail.known)
        while self._held - len(self._tails[0].known) >= keep:
            oldest = self._tails.popleft()
            self._held -= len(oldest.known)
            self._access.trim(0)
            self._access.sum_up_like(oldest.counts(), oldest.order(0))

    def _write_down(self) -> None:
        """Keep the access lines that are held one by one."""
        late = self._access.late
        for tail in self._tails:
            late += tail.rows()
        self._tails.clear()
        self._held = 0
        late.sort(key=_order_of)  # those that were read in full are there before those that were held
        self._access.trim()

    def _take(self, found: Sequence[Event], line: str, end: str) -> None:
        """Keep the events of a line; `end` is the request of an access line and what follows."""
        for event in found:
            if (sound := sound_event(event)) is not None:
                self._thinner.add(sound)
        if len(found) > 1:
            return
        first = found[0]
        if end:
            known = self._access.known
            if first.name == "http_access" and self._access.full and len(known) < _MOST_SHAPES:
                known[end] = first
                self._longest[end] = _CLIENT + len(_REQUEST) + len(end)
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
        self._write_down()
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


@dataclass(frozen=True, slots=True)
class _Tail:
    """The known access lines of a batch, which are written down one by one only where the log ends soon after."""

    lines: Sequence[str]
    ends: Sequence[str]
    known: Sequence[int]  # their indexes
    base: int
    stamped: Sequence[int]
    stamps: Sequence[tuple[str, str] | None]  # one more: the first stands before the first of `stamped`

    def order(self, place: int) -> int:
        """The place of one of them in the order of all events."""
        return (self.base + self.known[place]) * _PER_LINE

    def counts(self) -> Counter[str]:
        """How many there are of each kind."""
        return Counter([self.ends[index] for index in self.known])

    def rows(self) -> Iterator[Row]:
        """Each as a row. Its stamp is SGLang's own, else that of the last event's line before it."""
        for index in self.known:
            line, number = self.lines[index], self.base + index
            before = self.stamps[bisect_right(self.stamped, number)]
            yield self.ends[index], number * _PER_LINE, number, line, ("full", line[1:20]) if line[0] == "[" else before


def _without(others: Sequence[int], count: int) -> Iterator[int]:
    """The indexes below `count` that are not among the others, which are in order."""
    start = 0
    for other in others:
        yield from range(start, other)
        start = other + 1
    yield from range(start, count)


def _order_of(kept: Event | Row) -> int:
    return kept[1] if isinstance(kept, tuple) else kept.order


def _telling(line: str) -> bool:
    """Whether a periodic line says more than its numbers."""
    return "reempt" in line or "etract" in line or ("Swapped: " in line and "Swapped: 0" not in line)
