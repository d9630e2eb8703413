"""The lines of one log, one after another, as events with phases."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from infradoc_rules.maps.info import parse_value
from infradoc_rules.model import Event, Fact, Value
from infradoc_rules.patterns.prefix import Prefix, take_off
from infradoc_rules.patterns.sets import Pattern, PatternSet, pattern_set
from infradoc_rules.patterns.sizes import number_of
from infradoc_rules.patterns.stamps import unix_time
from infradoc_rules.patterns.traceback import Raised, TracebackReader
from infradoc_rules.signals import signal_table

TEXT_LIMIT = 400  # characters of a line that an event keeps
LINE_LIMIT = 16_384  # characters of a line that are looked at
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_INT_TYPES = frozenset({"int", "tokens", "requests", "blocks", "bytes", "pid"})
_FLOAT_TYPES = frozenset({"float", "seconds", "ratio", "rate"})
_NUMBERS = _INT_TYPES | _FLOAT_TYPES
_MOST_PROCESSES = 512  # writers whose tracebacks are followed apart; a hostile log may name millions
_MOST_KNOWN = 4_096  # messages whose patterns are remembered
_SUBLINES = 2_000
_STATED = 2_000  # statements kept; a log that changes a fact more often tells of no setting


@dataclass
class LogScanner:
    """Turns the lines of one log into events, one after another, keeping the order and the start-up phase.

    source: name shown in evidence ("server.log"). year and utc_offset (seconds) complete time stamps that lack them;
    start: Unix time of a log whose stamps count from its start. A line without a stamp has the time of `now` that it
    is fed with, else of the last stamped line before it. patterns: instead of those of `system`. A line that holds
    line ends (an unpacked JSON record) is read as several under one number.
    """

    system: str | None
    source: str = "log"
    year: int | None = None
    utc_offset: float = 0.0
    start: float | None = None
    lines: int = 0
    unparsed: int = 0
    order: int = 0
    phase: str = "launch"
    facts: dict[str, Fact] = field(default_factory=dict)
    patterns: PatternSet | None = None

    def __post_init__(self) -> None:
        self._set = self.patterns or pattern_set(self.system)
        self._match = self._set.search.Match
        self._known: dict[str, Sequence[int]] = {}  # message -> the patterns in it
        self._tracebacks: dict[str, TracebackReader] = {}
        self._open = 0  # tracebacks that have begun and not ended
        self.stamp: tuple[str, str] | None = None  # of the last stamped line
        self.stated: list[Fact] = []  # every fact as it was said, where `facts` holds the last word
        self._said: set[str] = set()  # names stated since the last launch
        self._stamp_read: tuple[tuple[str, str] | None, float | None] = (None, None)

    def feed(self, line: str, now: float | None = None) -> list[Event]:
        """Events of one line; often none. Blank lines count as nothing, unknown lines as unparsed."""
        self.lines += 1
        if "\n" in line:
            return [event for part in line.split("\n", _SUBLINES)[:_SUBLINES] for event in self._line(part, now)]
        return self._line(line, now)

    def _line(self, line: str, now: float | None) -> list[Event]:
        text = line[:LINE_LIMIT]
        if "\x1b" in text:
            text = _ANSI.sub("", text)
        text = text.rstrip()
        if not text:
            return []
        prefix = take_off(text) if self._set.prefix is None else self._prefix(text)
        message = prefix.message
        if prefix.stamp is not None:
            self.stamp = prefix.stamp
        raised, inside, code = None, False, False
        if self._open or 'File "' in message or "Traceback" in message:
            raised, inside, code = self._traceback(prefix.process, message)
        hits = () if code else self._hits(message)
        if not hits and raised is None:
            self.unparsed += not inside
            return []
        data = message.encode(errors="replace")
        return self._events(hits, raised, data, text, self._time(prefix, now))

    def _hits(self, message: str) -> Sequence[int]:
        """The patterns that occur in a message, in their order. What a server complains of it repeats word for word."""
        found = self._known.get(message)
        if found is None:
            found = sorted(self._match(message.encode(errors="replace")) or ())
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            if len(message) <= TEXT_LIMIT:
                self._known[message] = found
        return found

    def _events(
        self, hits: Sequence[int], raised: Raised | None, message: bytes, text: str, when: float | None
    ) -> list[Event]:
        phase = self.phase
        if raised is not None:
            self.phase = self._phase_of(raised) or self.phase
        found = [self._event(self._set.patterns[index], message, text, when, raised) for index in hits]
        if raised is not None:
            found.append(self._raised(raised, text, when))
            self.phase = phase
        events = [event for event in found if event is not None]
        # What a pattern knows says more than that a line is an error.
        return events if len(events) < 2 else [event for event in events if event.name != "error_line"]

    def _prefix(self, text: str) -> Prefix:
        general = take_off(text)
        own = self._set.prefix.search(text)
        if own is None:
            return general
        groups: dict[str, str | None] = own.groupdict()
        message = groups.get("msg") or ""
        if len(message) >= len(general.message):
            return general
        stamp = groups.get("ts") or groups.get("stamp")
        offset = groups.get("offset")
        form = ("offset", offset) if offset else ("full" if len(stamp) > 14 else "day", stamp) if stamp else None
        process = "".join(groups.get(name) or "" for name in ("proc", "pid", "rank")) or general.process
        return Prefix(message, form or general.stamp, process, general.level)

    def _traceback(self, process: str, message: str) -> tuple[Raised | None, bool, bool]:
        """The exception that ends here, whether the line belongs to a traceback, and whether it quotes its code."""
        reader = self._tracebacks.get(process)
        if reader is None:
            if len(self._tracebacks) >= _MOST_PROCESSES:
                self._tracebacks.clear()
                self._open = 0
            reader = self._tracebacks[process] = TracebackReader()
        was_open = reader.open
        raised = reader.feed(message)
        self._open += reader.open - was_open
        return raised, was_open or reader.open, reader.code

    def _phase_of(self, raised: Raised) -> str | None:
        """The phase that the innermost function known to the patterns runs in.

        A profile or warm-up calls what serving calls, so a start-up phase anywhere on the way decides.
        """
        known = [self._set.functions[name] for name in reversed(raised.functions) if name in self._set.functions]
        return next((phase for phase in known if phase != "serving"), known[0] if known else None)

    def _raised(self, raised: Raised, line: str, when: float | None) -> Event:
        self.order += 1
        fields: dict[str, Value] = {
            "exception": raised.exception,
            "message": raised.message,
            "function": raised.functions[-1] if raised.functions else "",
            "functions": " ".join(raised.functions),
            "file": raised.file,
        }
        place = f"{self.source}:{self.lines}"
        return Event("traceback", self.order, fields, when, self.phase, place, line[:TEXT_LIMIT])

    def _event(
        self, pattern: Pattern, data: bytes, line: str, when: float | None, raised: Raised | None
    ) -> Event | None:
        match = pattern.regex.search(data)
        if match is None:
            return None
        place = f"{self.source}:{self.lines}"
        if raised is None:
            self.phase = pattern.phase or self.phase
        for name, group in pattern.facts.items():
            value = parse_value((_part(data, match, group) or "").replace(",", ""))
            if value is not None:
                self._state(Fact(name, value, "log", place))
        if pattern.event is None:
            return None
        if pattern.event == "launched":
            self._said.clear()
        self.order += 1
        known = {field: self.facts[name].value for field, name in pattern.from_facts.items() if name in self.facts}
        if raised is not None:
            known["functions"] = " ".join(raised.functions)
        return Event(
            name=pattern.event,
            order=self.order,
            fields={**known, **_fields(pattern, data, match)},
            time=when,
            phase=self.phase,
            source=place,
            text=line[:TEXT_LIMIT],
        )

    def _state(self, fact: Fact) -> None:
        """Take in a fact; `stated` keeps what each start says, and each change within one."""
        held = self.facts.get(fact.name)
        if (held is None or held.value != fact.value or fact.name not in self._said) and len(self.stated) < _STATED:
            self.stated.append(fact)
        self._said.add(fact.name)
        self.facts[fact.name] = fact

    def _time(self, prefix: Prefix, now: float | None) -> float | None:
        stamp = prefix.stamp
        if stamp is None:
            if now is not None:
                return now
            stamp = self.stamp
        when = self.time_of(stamp)
        return now if when is None else when

    def time_of(self, stamp: tuple[str, str] | None) -> float | None:
        """Unix seconds of a stamp; None where it does not say."""
        if stamp is None:
            return None
        if self._stamp_read[0] != stamp:
            self._stamp_read = (stamp, self._unix_time(*stamp))
        return self._stamp_read[1]

    def _unix_time(self, form: str, text: str) -> float | None:
        if form != "offset":
            return unix_time(form, text, self.year, self.utc_offset)
        if self.start is None:
            return None
        minutes, seconds, millis, micros = (int(part) for part in text.split("."))
        return self.start + 60 * minutes + seconds + millis / 1e3 + micros / 1e6


def _part(data: bytes, match: Any, group: int) -> str | None:
    start, end = match.span(group)
    return None if start < 0 else data[start:end].decode(errors="replace")


def _fields(pattern: Pattern, data: bytes, match: Any) -> dict[str, Value]:
    out: dict[str, Value] = dict(pattern.constants)
    if pattern.fields:
        types = signal_table().events[pattern.event or ""].fields
        for name, (group, scale) in pattern.fields.items():
            text = _part(data, match, group)
            if text is not None:
                out[name] = _typed(text, types[name], scale)
    return out


def _typed(text: str, kind: str, scale: float) -> Value:
    if kind not in _NUMBERS:
        return text
    try:
        number = float(text) * scale
    except ValueError:
        try:
            number = number_of(text) * scale
        except ValueError:  # "1.2.3" or "n/a": what stands there is no number
            return text
    if not math.isfinite(number):
        return text  # hundreds of digits: a hostile line, not a reading
    return round(number) if kind in _INT_TYPES else number
