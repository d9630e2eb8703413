"""Opens what was given, splits it into segments, and reads them into one ordered account."""

from __future__ import annotations

import gc
import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from infradoc.artefacts.cut import Cut, cut_of, half_shown, half_told
from infradoc.artefacts.documents import breaks_off, is_flat
from infradoc.artefacts.kinds import KINDS
from infradoc.artefacts.kinds.log import reader_of
from infradoc.artefacts.model import Artefact, Gathered, Segment
from infradoc.artefacts.newest_first import turned
from infradoc.artefacts.notes import Notes
from infradoc.artefacts.open import ArtefactError, Opening, Text
from infradoc.artefacts.servers import Part, Signs, by_server, has_banner, signs_of
from infradoc.artefacts.shuffled import in_order
from infradoc.artefacts.sound import sound_event, sound_facts
from infradoc.artefacts.split import LOG, split
from infradoc.artefacts.subfolders import are_incidents, candidates
from infradoc.artefacts.text import Cleaner
from infradoc.artefacts.unfold import unfolded
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact
from infradoc_rules.patterns import LogScanner, weights

HEAD_CHARACTERS = 4 << 20  # of a text that are split by content; what follows is read as the log that it began as
HEAD_LINES = 100_000  # likewise: a line held takes 60 bytes beside its characters
JSON_CHARACTERS = 24 << 20  # a JSON document is one value and read whole, up to what 150 MB of memory allow
JSON_LINES = 1_000_000
_HELD_CHARACTERS = 12 << 20  # log lines held until the engine is known from all files together
_WINDOW = 400  # lines that the engine is told by at a time
_DISTINCT_LINES = 8_000  # that are looked through for a sign of the engine
_HALF_YEAR = 180 * 86_400.0
_YEAR = lazy(r"\b(20\d\d)[-/](?:0[1-9]|1[0-2])[-/](?:0[1-9]|[12]\d|3[01])[T ]\d\d:\d\d")
_LAUNCHED = 1_000.0  # what a launch command weighs against log lines when they name different engines
_SEEN = 1.0  # what a row of a process table weighs: other servers run on the host as well
# A server's own word on a setting beats the flag it was started with, and that beats a file beside it.
_TRUST = {"default": 0, "file": 1, "config": 2, "flag": 3, "log": 4, "metrics": 5, "api": 5, "derived": -1}


def gather(path: Path | None, endings: tuple[str, ...] = ("",)) -> Gathered:
    """Everything that a file, a folder, an archive or standard input (None) says.

    endings: of the files of a folder only those whose names end so.

    Raises ArtefactError when there is nothing at all that can be read.
    """
    opening = Opening("(stdin)" if path is None else path.name or str(path))
    account = _Account(opening.notes)
    # Nothing here makes cycles, and the collector would walk all events kept so far again and again.
    collecting = gc.isenabled()
    gc.disable()
    try:
        for text in opening.texts(path, endings):
            if not account.take(text) and not text.reader.thinned.unread:
                opening.notes.add("blank", text.name)
    finally:
        if collecting:
            gc.enable()
    if not account.parts and not account.held and not opening.notes.counts["cut"]:
        said = [note.text() for note in opening.notes.kept if note.kind != "label"]
        why = said[0] if said else f"{opening.name} holds nothing to read."
        raise ArtefactError(why, "Give logs, launch commands, metrics pages or nvidia-smi output as text.")
    whole = account.gathered(opening.name, opening.notes)
    if path is not None and path.is_dir():
        incidents = _incidents(path, account, endings)
        whole.servers = incidents or whole.servers
    return whole


def _incidents(root: Path, account: _Account, endings: tuple[str, ...]) -> list[Gathered]:
    """Each subfolder read by itself, where they are incidents of their own; else none."""
    folders = candidates(root, list(account.parts.values()))
    try:
        found = [gather(folder, endings) for folder in folders]
    except (ArtefactError, OSError):  # gone meanwhile
        return []
    return found if are_incidents(found) else []


def segments_of(path: Path) -> list[Segment]:
    """The segments of all texts below `path`, as far as they are split by content."""
    found: list[Segment] = []
    for text in Opening(path.name).texts(path):
        head, _, _, cleaner = _head(text)
        found += split(text.name, cleaner.clean(head))
    return found


@dataclass(slots=True)
class _Held:
    """A log segment that waits until the engine is known; `place` is where its part belongs."""

    segment: Segment
    group: str
    place: int
    signs: Signs


@dataclass
class _Account:
    """What was read so far."""

    notes: Notes
    parts: dict[int, Part] = field(default_factory=dict)
    held: list[_Held] = field(default_factory=list)
    votes: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    scanners: dict[str, LogScanner] = field(default_factory=dict)
    year: int | None = None
    size: int = 0
    places: int = 0

    def take(self, text: Text) -> bool:
        """Split and read one text; small logs wait for `gathered`. False when it holds nothing but blanks."""
        head, rest, size, cleaner = _head(text)
        lines = cleaner.clean(head)
        cut = cut_of(head, lines)
        if cut is not None:
            self.notes.add("cut" if cut.telling(head, lines) else "cut_settings", text.name, width=cut.width)
            lines = cut.marked(head, lines)
        self._see_year(lines)
        following = next(rest, None)
        streams = cleaner.streams(head) if following is None else []
        if following is None and (ordered := turned(lines, streams)) is not None:
            self.notes.add("turned", text.name)
            lines, streams = ordered, streams[::-1]
        each = _each_of(lines, streams) if streams else {}
        if sum(map(has_banner, each.values())) > 1:
            found = [
                self._take(f"{text.name}[{name}]", f"{text.group}[{name}]", some, size, name)
                for name, some in each.items()
            ]
            return any(found)
        if following is None:
            return self._take(text.name, text.group, lines, size)
        logs = self._take_but_logs(split(text.name, lines), text.group)
        first = logs[0] if logs else Segment(LOG, text.name, 1, [])
        self._stream(text, first, following, rest, cleaner, len(head), cut)
        return True

    def _take(self, source: str, group: str, lines: Sequence[str], size: int, name: str = "") -> bool:
        """Take in the lines of one source."""
        segments = split(source, lines)
        if [segment.kind for segment in segments] == [LOG] and (broken := breaks_off(lines)) is not None:
            self.notes.add("json", source, line=broken)
        if is_flat(lines):
            self.notes.add("flat", source)
        logs = self._take_but_logs(segments, group)
        for segment in logs:
            self.held.append(_Held(segment, group, self._next(), signs_of(segment.lines, name)))
        self.size += size if logs else 0
        if self.size > _HELD_CHARACTERS:
            self._release()
        return bool(segments)

    def _take_but_logs(self, segments: Sequence[Segment], group: str) -> list[Segment]:
        """Read the segments that are no logs; the others, after they had their say on the engine."""
        half = self.notes.counts["cut"] and half_shown(segments)
        for segment in segments:
            if segment.kind != LOG and not (half and segment.kind in _ADDED_UP):
                self._read(segment, group)
        logs = [segment for segment in segments if segment.kind == LOG]
        for segment in logs:
            for system, weight in _weights(segment.lines).items():
                self.votes[system] += weight
        return logs

    def _see_year(self, lines: Sequence[str]) -> None:
        if self.year is None:
            found = next((match for line in lines[:2_000] if (match := _YEAR.search(line[:200]))), None)
            self.year = int(found[1]) if found else None

    def _next(self) -> int:
        self.places += 1
        return self.places

    def _read(self, segment: Segment, group: str) -> None:
        try:
            artefact = _BY_NAME[segment.kind].read(segment)
        except (ValueError, ArithmeticError):  # a number of thousands of digits, or one that is none
            self.notes.add("odd", segment.source, line=segment.first_line, what=segment.kind)
            artefact = Artefact(unparsed=len(segment.lines))
        artefact.events = [event for event in map(sound_event, artefact.events) if event is not None]
        artefact.facts = sound_facts(artefact.facts)
        self.parts[self._next()] = Part(segment.source, segment.kind, artefact, group, signs_of(segment.lines))
        if artefact.system:
            self.votes[artefact.system] += _SEEN if segment.kind == "host_tools" else _LAUNCHED

    def _stream(
        self,
        text: Text,
        first: Segment,
        following: list[str],
        rest: Iterator[list[str]],
        cleaner: Cleaner,
        head_lines: int,
        cut: Cut | None,
    ) -> None:
        """Read a long log batch by batch, as the engine that it is known to be of by now."""
        self._release()
        reader = reader_of(text.name, self._system_of(first), self.year or _ANY_YEAR, self.scanners.get(text.group))
        reader.feed(first.lines or [""] * head_lines)
        for batch in chain([following], rest):
            lines = cleaner.clean(batch) if text.reader.dirty or not cleaner.plain else batch
            reader.feed(lines if cut is None else cut.marked(batch, lines))
        self.scanners[text.group] = reader.scanner
        self.parts[self._next()] = Part(text.name, LOG, reader.artefact(), text.group, signs_of(first.lines))

    def _release(self) -> None:
        """Read the logs that wait."""
        for held in self.held:
            before = self.scanners.get(held.group)
            reader = reader_of(held.segment.source, self._system_of(held.segment), self.year or _ANY_YEAR, before)
            reader.scanner.lines = held.segment.first_line - 1
            reader.feed(in_order(held.segment.lines))
            self.scanners[held.group] = reader.scanner
            self.parts[held.place] = Part(held.segment.source, LOG, reader.artefact(), held.group, held.signs)
        self.held, self.size = [], 0

    def _system_of(self, segment: Segment) -> str | None:
        """The engine that a log is read as: the one of the whole case unless the log clearly names another."""
        main = self.system
        own = _weights(segment.lines)
        best = max(own, key=lambda system: own[system], default=None)
        if best is None or best == main:
            return main
        return best if own[best] >= max(1.0, 3 * own.get(main or "", 0.0)) or main is None else main

    @property
    def system(self) -> str | None:
        """The engine that the launch command and most log lines name."""
        best = max(self.votes, key=lambda system: self.votes[system], default=None)
        return best if best is not None and self.votes[best] >= 1 else None

    def gathered(self, name: str, notes: Notes) -> Gathered:
        """All parts together, and where they are of several servers those of each."""
        self._release()
        parts = [self.parts[place] for place in sorted(self.parts)]
        if notes.counts["cut"] or notes.counts["cut_settings"]:
            for part in parts:
                part.artefact.events = [event for event in part.artefact.events if not half_told(event)]
        whole = _joined(name, parts, self.system, notes)
        whole.servers = [
            _joined(_named(some), some, _own_system(some) or self.system, notes) for some in by_server(parts)
        ]
        return whole


def _joined(name: str, parts: Sequence[Part], system: str | None, notes: Notes) -> Gathered:
    """Parts as one account: events get one running order, facts the most trusted origin."""
    found = [part.artefact for part in parts]
    return Gathered(
        name=name,
        events=[replace(event, order=place) for place, event in enumerate(merged(found), start=1)],
        facts=_facts(found, system),
        series=[series for artefact in found for series in artefact.series],
        system=system,
        kinds=[(part.source, part.kind) for part in parts],
        unparsed=sum(artefact.unparsed for artefact in found),
        notes=notes,
        stated=[fact for artefact in found for fact in artefact.facts],
    )


def _named(parts: Sequence[Part]) -> str:
    """A server by the first of its logs."""
    return next(part.source for part in parts if part.kind == LOG and part.signs.banner)


def _own_system(parts: Sequence[Part]) -> str | None:
    return next((part.artefact.system for part in parts if part.signs.banner and part.artefact.system), None)


def _each_of(lines: Sequence[str], streams: Sequence[str]) -> dict[str, list[str]]:
    """The lines of each stream, those of the others left blank."""
    return {
        name: [line if stream == name else "" for line, stream in zip(lines, streams, strict=True)]
        for name in dict.fromkeys(stream for stream in streams if stream)
    }


def _weights(lines: Sequence[str]) -> dict[str, float]:
    """How strongly a log speaks for each engine: by its first lines, or where those are noise by the next ones.

    A container's own output, progress bars or another program may fill thousands of lines before the engine's first.
    """
    first = weights(lines)
    if max(first.values(), default=0.0) >= 1:
        return first
    others = [line for line in dict.fromkeys(lines) if line]
    for start in range(0, min(len(others), _DISTINCT_LINES), _WINDOW):
        found = weights(others[start : start + _WINDOW])
        if max(found.values(), default=0.0) >= 1:
            return found
    return first


_BY_NAME = {kind.name: kind for kind in KINDS}
_ADDED_UP = frozenset({"metrics", "response"})  # kinds whose numbers say nothing where some are missing
_ANY_YEAR = 2000  # of stamps without a year when no file names one; a leap year, so that every day exists


def _head(text: Text) -> tuple[list[str], Iterator[list[str]], int, Cleaner]:
    """The first lines of a text, its further batches, how many characters were taken, and its cleaner."""
    batches = text.reader.batches()
    lines: list[str] = []
    size = 0
    limit, most_lines = HEAD_CHARACTERS, HEAD_LINES
    for batch in batches:
        if not lines and batch[0].lstrip()[:1] in ("{", "["):
            limit, most_lines = (JSON_CHARACTERS, JSON_LINES) if _one_value(batch) else (limit, most_lines)
        lines += batch
        size += sum(map(len, batch))
        if size > limit or len(lines) > most_lines:
            break
    lines = unfolded(lines)
    return lines, batches, size, Cleaner(lines)


def _one_value(batch: Sequence[str]) -> bool:
    """Whether a text that begins with a bracket is one JSON value rather than a log of records."""
    first = batch[0].strip()
    return not (first.startswith("{") and first.endswith("}") and len(batch) > 1) and first[:2] != "[2"


def merged(found: Sequence[Artefact]) -> list[Event]:
    """The events of all artefacts: in the order of each, merged by time among those that have times.

    Those without any time stay in the order of the files and come first. A clock that jumps back does not reorder a
    log: its lines count as written no earlier than those above them.
    """
    timed = [artefact.events for artefact in found if any(event.time is not None for event in artefact.events)]
    loose = [event for artefact in found for event in artefact.events if artefact.events not in timed]
    by_time = heapq.merge(*(_paced(events) for events in timed), key=lambda pair: pair[0])
    return [*loose, *(event for _, event in by_time)]


def _paced(events: Sequence[Event]) -> Iterator[tuple[float, Event]]:
    now = next(event.time for event in events if event.time is not None)
    years = 0.0
    for event in events:
        if event.time is not None:
            if event.time + years < now - _HALF_YEAR:  # stamps without a year, over New Year's Eve
                years += 366 * 86_400.0
            now = max(now, event.time + years)
        yield now, event


def _facts(found: Sequence[Artefact], system: str | None) -> dict[str, Fact]:
    best: dict[str, Fact] = {}
    for artefact in found:
        others = _is_of_another(artefact, system)
        for fact in artefact.facts:
            if others and fact.origin in ("flag", "config"):
                continue
            held = best.get(fact.name)
            if fact.name == "target.system" and fact.value != system:
                continue
            if held is None or _TRUST[fact.origin] >= _TRUST[held.origin]:
                best[fact.name] = fact
    return best


def _is_of_another(artefact: Artefact, system: str | None) -> bool:
    """Whether an artefact starts only engines other than the one judged: its settings are not those of this one."""
    started = {fact.value for fact in artefact.facts if fact.name == "target.system"}
    return system is not None and bool(started) and system not in started
