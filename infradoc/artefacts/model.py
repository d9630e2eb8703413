"""The types between opening a file and judging it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from infradoc.artefacts.notes import Notes
from infradoc_rules.model import Event, Fact, Series


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of lines of one kind. `source` is the name shown in evidence, `first_line` the number of its first line.

    `lines` are decoded, without line ends, ANSI sequences, markdown fences or HTML escapes.
    """

    kind: str
    source: str
    first_line: int
    lines: Sequence[str]

    def place(self, index: int) -> str:
        """ "server.log:12" for the line at `index`."""
        return f"{self.source}:{self.first_line + index}"


@dataclass(slots=True)
class Artefact:
    """What one segment says. Events carry their place; `order` is given when all segments are put together."""

    events: list[Event] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    system: str | None = None
    unparsed: int = 0


class Kind(Protocol):
    """One kind of artefact: how it is recognised, and how it is read."""

    name: str

    def spans(self, lines: Sequence[str]) -> Sequence[tuple[int, int]]:
        """The half-open ranges [start, end) of these lines that are surely of this kind. Linear, and never raises."""

    def read(self, segment: Segment) -> Artefact:
        """Events and facts of a segment. Never raises for what the text holds."""


@dataclass(slots=True)
class Gathered:
    """All artefacts of one target together, in order."""

    name: str
    events: list[Event]
    facts: dict[str, Fact]
    series: list[Series]
    system: str | None
    kinds: list[tuple[str, str]]  # (source, kind)
    unparsed: int
    notes: Notes = field(default_factory=Notes)  # what could not be read
    stated: list[Fact] = field(default_factory=list)  # every fact as each artefact states it, in order
    servers: list[Gathered] = field(default_factory=list)  # where it is of several servers, what is known of each


Lines = Iterable[str]
