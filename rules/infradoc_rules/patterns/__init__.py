"""Log lines to typed events. Patterns are RE2: linear time, because logs are untrusted text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infradoc_rules.model import Event, Fact
from infradoc_rules.patterns.prefix import take_off
from infradoc_rules.patterns.scanner import LINE_LIMIT, TEXT_LIMIT, LogScanner
from infradoc_rules.patterns.sets import (
    COMMON,
    SYSTEMS,
    PatternSet,
    detectors,
    event_set,
    own_set,
    pattern_set,
    sole_texts,
)

_DETECT_LINES = 400
_OWN_PATTERNS = 2


@dataclass(frozen=True, slots=True)
class Scan:
    """A whole log: its events, facts, and how many of its lines no pattern knew."""

    system: str | None
    events: tuple[Event, ...]
    facts: Mapping[str, Fact]
    lines: int
    unparsed: int


def scan(lines: Iterable[str], system: str | None = None, source: str = "log", **times: Any) -> Scan:
    """All events of a log. `system` is recognised from its lines when not given; of an unknown one the lines that any
    log may hold are read.

    times: `year`, `utc_offset`, `start` of LogScanner.
    """
    held = list(lines)
    known = system or detect(held)
    scanner = LogScanner(known, source, **times)
    events = [event for line in held for event in scanner.feed(line)]
    return Scan(known, tuple(events), scanner.facts, scanner.lines, scanner.unparsed)


def detect(lines: Sequence[str]) -> str | None:
    """The engine that wrote a log, from its first lines; None when none is recognised."""
    scores = weights(lines)
    best = max(scores, key=lambda system: scores[system], default=None)
    return best if best is not None and scores[best] >= 1 else None


def weights(lines: Sequence[str]) -> dict[str, float]:
    """How strongly the first lines speak for each engine; below 1 is no proof. Engines without a sign are left out."""
    kept = [line[:LINE_LIMIT] for line in lines[:_DETECT_LINES]]
    head = "\n".join(kept)
    named = {system: float(sum(len(regex.findall(head)) for regex in detectors(system))) for system in SYSTEMS}
    if any(named.values()):
        return {system: score for system, score in named.items() if score}
    sole = {system: float(sum(len(regex.findall(head)) for regex in sole_texts(system))) for system in SYSTEMS}
    if any(sole.values()):
        return {system: score for system, score in sole.items() if score}
    # Without the prefixes of a log its lines still say who wrote them: distinct own patterns, one is no proof.
    messages = [take_off(line).message for line in kept]
    held = {system: _own_hits(system, messages) for system in SYSTEMS}
    return {system: hits / _OWN_PATTERNS for system, hits in held.items() if hits}


def _own_hits(system: str, messages: Sequence[str]) -> int:
    """How many different patterns of this engine alone occur in the messages."""
    known = own_set(system)
    return len({index for message in messages for index in known.Match(message) or ()})


def length_error(text: str) -> Event | None:
    """The `request_rejected_length` event in a refused request's body, of whichever engine; None when it is none.

    Lines that any engine may write say less than an engine's own: the event with most fields is the one.
    """
    scanner = LogScanner(None, "response", patterns=event_set("request_rejected_length"))
    found = [event for event in scanner.feed(text) if event.name == "request_rejected_length"]
    return max(found, key=lambda event: len(event.fields), default=None)


__all__ = [
    "COMMON",
    "LINE_LIMIT",
    "SYSTEMS",
    "TEXT_LIMIT",
    "LogScanner",
    "PatternSet",
    "Scan",
    "detect",
    "detectors",
    "length_error",
    "pattern_set",
    "scan",
    "weights",
]
