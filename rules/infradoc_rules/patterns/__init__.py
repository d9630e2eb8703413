"""Log lines to typed events. Patterns are RE2: linear time, because logs are untrusted text."""

from __future__ import annotations

import calendar
import math
import re
import time as time_module
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any

import re2

from infradoc_rules.maps.info import parse_value
from infradoc_rules.model import Event, Fact, Value
from infradoc_rules.signals import signal_table
from infradoc_rules.yaml_file import load_plain

SYSTEMS = ("vllm", "llamacpp")
TEXT_LIMIT = 400  # characters of a line that an event keeps
LINE_LIMIT = 16_384  # characters of a line that are looked at
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_INT_TYPES = frozenset({"int", "tokens", "requests", "blocks", "bytes", "pid"})
_FLOAT_TYPES = frozenset({"float", "seconds", "ratio", "rate"})
_DETECT_LINES = 400


@dataclass(frozen=True)
class _Pattern:
    id: str
    regex: Any
    event: str | None
    fields: Mapping[str, tuple[str, float]]
    constants: Mapping[str, Value]
    from_facts: Mapping[str, str]
    facts: Mapping[str, str]
    phase: str | None


@dataclass(frozen=True)
class PatternSet:
    """The compiled patterns of one engine."""

    system: str
    prefix: Any
    detect: tuple[Any, ...]
    patterns: tuple[_Pattern, ...]
    search: Any  # re2.Set: which patterns occur in a line, in one pass


@dataclass
class LogScanner:
    """Turns the lines of one log into events, one after another, keeping the order and the start-up phase.

    source: name shown in evidence ("server.log"). year and utc_offset (seconds) complete time stamps that lack them;
    start: Unix time of a log whose stamps count from its start. Without them a line's time is the `now` it is fed with.
    """

    system: str
    source: str = "log"
    year: int | None = None
    utc_offset: float = 0.0
    start: float | None = None
    lines: int = 0
    unparsed: int = 0
    order: int = 0
    phase: str = "launch"
    facts: dict[str, Fact] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._set = pattern_set(self.system)

    def feed(self, line: str, now: float | None = None) -> list[Event]:
        """Events of one line; often none. Blank lines count as nothing, unknown lines as unparsed."""
        self.lines += 1
        text = _ANSI.sub("", line[:LINE_LIMIT]).rstrip()
        if not text.strip():
            return []
        prefix = self._set.prefix.search(text)
        message = prefix.group("msg") if prefix is not None else text
        hits = sorted(self._set.search.Match(message) or ())  # None when nothing matches
        if not hits:
            self.unparsed += 1
            return []
        when = self._time(prefix, now)
        found = [self._event(self._set.patterns[index], message, text, when) for index in hits]
        return [event for event in found if event is not None]

    def _event(self, pattern: _Pattern, message: str, line: str, when: float | None) -> Event | None:
        match = pattern.regex.search(message)
        if match is None:
            return None
        place = f"{self.source}:{self.lines}"
        self.phase = pattern.phase or self.phase
        for name, group in pattern.facts.items():
            value = parse_value((match.group(group) or "").replace(",", ""))
            if value is not None:
                self.facts[name] = Fact(name, value, "log", place)
        if pattern.event is None:
            return None
        self.order += 1
        known = {field: self.facts[name].value for field, name in pattern.from_facts.items() if name in self.facts}
        return Event(
            name=pattern.event,
            order=self.order,
            fields={**known, **_fields(pattern, match)},
            time=when,
            phase=self.phase,
            source=place,
            text=line[:TEXT_LIMIT],
        )

    def _time(self, prefix: Any, now: float | None) -> float | None:
        groups = {} if prefix is None else prefix.groupdict()
        stamp, offset = groups.get("ts"), groups.get("offset")
        if stamp and self.year is not None:
            return _stamp_time(f"{self.year}-{stamp}", self.utc_offset)
        if offset and self.start is not None:
            minutes, seconds, millis, micros = (int(part) for part in offset.split("."))
            return self.start + 60 * minutes + seconds + millis / 1e3 + micros / 1e6
        return now


@dataclass(frozen=True, slots=True)
class Scan:
    """A whole log: its events, facts, and how many of its lines no pattern knew."""

    system: str | None
    events: tuple[Event, ...]
    facts: Mapping[str, Fact]
    lines: int
    unparsed: int


def scan(lines: Iterable[str], system: str | None = None, source: str = "log", **times: Any) -> Scan:
    """All events of a log. `system` is recognised from its lines when not given; None = no log that we know.

    times: `year`, `utc_offset`, `start` of LogScanner.
    """
    held = list(lines)
    known = system or detect(held)
    if known is None:
        return Scan(None, (), {}, len(held), len(held))
    scanner = LogScanner(known, source, **times)
    events = [event for line in held for event in scanner.feed(line)]
    return Scan(known, tuple(events), scanner.facts, scanner.lines, scanner.unparsed)


def detect(lines: Sequence[str]) -> str | None:
    """The engine that wrote a log, from its first lines; None when none is recognised."""
    head = "\n".join(line[:LINE_LIMIT] for line in lines[:_DETECT_LINES])
    scores = {system: sum(len(regex.findall(head)) for regex in pattern_set(system).detect) for system in SYSTEMS}
    best = max(SYSTEMS, key=lambda system: scores[system])
    return best if scores[best] else None


def length_error(text: str) -> Event | None:
    """The `request_rejected_length` event in a refused request's body, of whichever engine; None when it is none."""
    for system in SYSTEMS:
        for event in LogScanner(system, "response").feed(text):
            if event.name == "request_rejected_length":
                return event
    return None


@lru_cache(maxsize=len(SYSTEMS))
def pattern_set(system: str) -> PatternSet:
    """The patterns of `system`. Raises LookupError naming the known ones."""
    if system not in SYSTEMS:
        raise LookupError(f"no log patterns for {system!r}; known: {', '.join(SYSTEMS)}")
    raw: dict[str, Any] = load_plain(resources.files("infradoc_rules.patterns") / f"{system}.yaml")
    search = re2.Set.SearchSet()
    for row in raw["patterns"]:
        search.Add(row["pattern"])
    search.Compile()
    patterns = tuple(_pattern(row) for row in raw["patterns"])
    detectors = tuple(re2.compile(text) for text in raw["detect"])
    return PatternSet(system, re2.compile(raw["prefix"]), detectors, patterns, search)


def _pattern(row: Mapping[str, Any]) -> _Pattern:
    fields = {
        name: (entry, 1.0) if isinstance(entry, str) else (entry["from"], float(entry["scale"]))
        for name, entry in (row.get("fields") or {}).items()
    }
    return _Pattern(
        id=row["id"],
        regex=re2.compile(row["pattern"]),
        event=row.get("event"),
        fields=fields,
        constants=dict(row.get("set") or {}),
        from_facts=dict(row.get("from_facts") or {}),
        facts=dict(row.get("facts") or {}),
        phase=row.get("phase"),
    )


def _fields(pattern: _Pattern, match: Any) -> dict[str, Value]:
    spec = signal_table().events[pattern.event or ""]
    out: dict[str, Value] = dict(pattern.constants)
    for name, (group, scale) in pattern.fields.items():
        text = match.group(group)
        if text is not None:
            out[name] = _typed(text, spec.fields[name], scale)
    return out


def _typed(text: str, kind: str, scale: float) -> Value:
    if kind not in _FLOAT_TYPES | _INT_TYPES:
        return text
    number = float(text.replace(",", "")) * scale
    if not math.isfinite(number):
        return text  # hundreds of digits: a hostile line, not a reading
    return round(number) if kind in _INT_TYPES else number


def _stamp_time(stamp: str, utc_offset: float) -> float | None:
    try:
        return calendar.timegm(time_module.strptime(stamp, "%Y-%m-%d %H:%M:%S")) - utc_offset
    except ValueError:  # such as 02-29 in a year without it
        return None
