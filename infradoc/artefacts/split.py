"""Splits a text into segments of one kind each; `kinds/__init__.py` says how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from infradoc.artefacts.kinds import KINDS
from infradoc.artefacts.log_reader import is_log_line
from infradoc.artefacts.model import Kind, Segment

LOG = "log"
SPAN_LINES = 20_000
_ALL_LINES = 2_000  # up to so many lines, kinds see every one
_SHOWN = 2_000  # characters of a line; tables and commands are shorter


def split(source: str, lines: Sequence[str], kinds: Sequence[Kind] = KINDS) -> list[Segment]:
    """The segments of one cleaned text, in order of their first lines. Blank texts have none."""
    if not any(line.strip() for line in lines):
        return []
    looked = _Looked(lines)
    owner: list[Kind | None] = [None] * len(lines)
    segments = [
        Segment(kind.name, source, start + 1, list(lines[start:end]))
        for kind, start, end in _claimed(looked, kinds, owner)
    ]
    rest = ["" if taken else line for line, taken in zip(lines, owner, strict=True)]
    if any(line.strip() for line in rest):
        segments.append(Segment(LOG, source, 1, rest))
    return sorted(segments, key=lambda segment: segment.first_line)


class _Looked:
    """The lines that kinds are asked about: of a long text only those that are not surely a log's.

    A run of log lines stands for one blank line; `spans` gives ranges of the text itself, without such runs.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self.text = lines
        self.short = len(lines) <= _ALL_LINES
        self._places: list[int] = []
        self.lines = [_shown(line) for line in lines] if self.short else self._telling(lines[:SPAN_LINES])

    def _telling(self, lines: Sequence[str]) -> list[str]:
        """Without the lines that are surely a log's; `_places` are the places of those kept in the text."""
        kept: list[str] = []
        for index, line in enumerate(lines):
            logged = is_log_line(line)
            if not logged or not kept or kept[-1]:
                kept.append("" if logged else _shown(line))
                self._places.append(index)
        return kept

    def spans(self, kind: Kind) -> list[tuple[int, int]]:
        """The ranges that a kind claims."""
        try:
            found = list(kind.spans(self.lines))
        except (ValueError, ArithmeticError):  # an impossible number: the lines are then a log's, and counted as such
            return []
        if self.short:
            return found
        return [part for start, end in found for part in self._parts(start, end)]

    def _parts(self, start: int, end: int) -> list[tuple[int, int]]:
        """[start, end) of the lines shown as ranges of the text, parted where log lines were left out."""
        places = self._places[start:end]
        parts: list[tuple[int, int]] = []
        for place in places:
            if parts and place == parts[-1][1]:
                parts[-1] = (parts[-1][0], place + 1)
            else:
                parts.append((place, place + 1))
        return parts


def _shown(line: str) -> str:
    """A line as kinds are asked about it: they search it with many expressions, so only JSON is shown whole."""
    return line if len(line) <= _SHOWN or line[:1] in "{[" else line[:_SHOWN]


def _claimed(looked: _Looked, kinds: Sequence[Kind], owner: list[Kind | None]) -> Iterator[tuple[Kind, int, int]]:
    for kind in kinds:
        for start, end in looked.spans(kind):
            for first, last in _free(owner, start, min(end, len(owner))):
                if any(line.strip() for line in looked.text[first:last]):
                    owner[first:last] = [kind] * (last - first)
                    yield kind, first, last


def _free(owner: Sequence[Kind | None], start: int, end: int) -> list[tuple[int, int]]:
    """The parts of [start, end) that nobody has yet."""
    parts = []
    for taken, group in groupby(range(start, end), key=lambda index: owner[index] is not None):
        held = list(group)
        if not taken:
            parts.append((held[0], held[-1] + 1))
    return parts
