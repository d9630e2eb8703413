"""Memory of a process over time as people log it by themselves: CSV files, `grep VmRSS` in a loop, rows of kubectl top.

One `process_usage` event for each row, as host_tools gives them for tables of tools. A row is told by what is the same
on all rows, its text without the digits; a single one says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from infradoc.artefacts.kinds.tables import size_of
from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Value

_LEAST = 3  # rows
_LONGEST = 160  # characters of a row; what says more is a log line
_CELLS = lazy(r"\s*[,;|\t]\s*")
_DIGITS = lazy(r"\d+(?:\.\d+)?")
_BLANKS = lazy(r"\s+")
_STAMP = lazy(
    r"(?:(?P<date>\d{4}[-/]\d\d[-/]\d\d)[T ])?(?<![\d:])(?P<time>\d\d:\d\d(?::\d\d)?)(?![\d:])|^\W*(?P<unix>1\d{9})\b"
)
_AGE = lazy(r"(?i)(?:^|[\s,;|(])(?:t ?\+ ?|after )?(?P<n>\d+(?:\.\d+)?) ?(?P<unit>h|hrs?|hours?|min|minutes?|days?)\b")
_UNITS = {"h": 3600.0, "m": 60.0, "d": 86_400.0, "s": 1.0}
_MEMORY = (
    r"(?:vm)?(?:rss|hwm)(?:[ _]?anon)?|anon|rss_anon|mem(?:ory)?(?:[ _.](?:used|usage|current|rss|anon|working[ _]set"
    r"|bytes))*|(?:host|cpu|system|used|proc(?:ess)?|container)[ _](?:mem(?:ory)?|ram|rss)(?:[ _](?:used|usage|rss))?"
    r"|ram(?:[ _](?:used|usage))?|working[ _]set"
)
_COLUMN = lazy(rf"(?i)^(?:{_MEMORY})(?:[ _]?[(\[]?(?P<unit>[kmg])i?b(?:ytes)?[)\]]?|[ _]bytes)?$")
_WHEN = lazy(
    r"(?i)^(?:t|ts|time|timestamp|date|datetime|when|elapsed|hours?|minutes?|min|days?|seconds?|uptime)"
    r"(?:[ _]?[(\[]?(?P<unit>h|min|m|s|sec|seconds|hours|minutes|days)[)\]]?)?$"
)
_NAMED = lazy(
    rf"(?i)(?:^|[\s,;|(\]])(?:{_MEMORY})(?:[ _]?\(?(?P<unit>[kmg])i?b\)?)?\s*[=:\s]\s*"
    r"(?P<size>\d+(?:\.\d+)? ?(?:[kmgt]i?b?)?)(?=$|[\s,;|)])"
)
_POD = lazy(r"\s\d+m\s+(?P<size>\d+(?:Mi|Gi))\s*$")  # of kubectl top: millicores, then memory
_OTHER = lazy(
    r"(?i)\b(?:loss|epoch|step|iter(?:ation)?s?|lr|tokens?|gpu|cuda|kv|cache|free|avail(?:able)?|buffer|block|vram|shm"
    r"|model|weights?|reserved|allocated|limit|total|peak|MemAvailable|info|warning|error|debug)\b"
)


@dataclass(frozen=True, slots=True)
class _Row:
    index: int
    shape: str
    size: float
    seconds: float | None


class MemorySeriesKind:
    """Readings of memory, one on a line."""

    name = "memory_series"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """Runs of rows of one shape, with the header of a table above them."""
        return [(start, rows[-1].index + 1) for start, rows in _series(lines)]

    def read(self, segment: Segment) -> Artefact:
        """The readings in order."""
        out = Artefact()
        for number, (_, rows) in enumerate(_series(segment.lines)):
            for sample, row in enumerate(rows, start=1):
                known: dict[str, Value] = {"name": f"memory {number}" if number else "memory", "bytes": round(row.size)}
                known["sample"] = sample
                if row.seconds is not None:
                    known["seconds"] = row.seconds
                text = segment.lines[row.index].strip()[:_LONGEST]
                out.events.append(Event("process_usage", 0, known, source=segment.place(row.index), text=text))
        return out


def _series(lines: Sequence[str]) -> Iterator[tuple[int, list[_Row]]]:
    """(line of the header or of the first row, rows) of each series; its rows have one shape and follow one another."""
    index = 0
    while index < len(lines):
        table = _table(lines, index)
        if len(table) >= _LEAST:
            yield index, table
            index = table[-1].index + 1
            continue
        rows = _alike(lines, index)
        if len(rows) >= _LEAST:
            yield index, rows
        index = rows[-1].index + 1 if rows else index + 1


def _table(lines: Sequence[str], start: int) -> list[_Row]:
    """The rows below a header of comma-separated (or barred) names with a time and a memory column."""
    names = _cells(lines[start])
    if not 2 <= len(names) <= 20:
        return []
    memory = next(((at, found) for at, name in enumerate(names) if (found := _COLUMN.match(name))), None)
    when = next(((at, found) for at, name in enumerate(names) if (found := _WHEN.match(name))), None)
    if memory is None or when is None:
        return []
    unit = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}.get((memory[1]["unit"] or "").lower(), 1)
    age = _UNITS.get((when[1]["unit"] or names[when[0]])[0].lower(), 1.0)
    rows: list[_Row] = []
    for index in range(start + 1, len(lines)):
        cells = _cells(lines[index])
        if rows == [] and set("".join(cells)) <= set("-: "):
            continue  # the rule below a header of Markdown
        size = size_of(cells[memory[0]].replace(" ", ""), unit) if len(cells) == len(names) else None
        if size is None:
            break
        said = cells[when[0]]
        plain = float(said) * age if re.fullmatch(r"\d+(?:\.\d+)?", said) else _seconds(said)
        rows.append(_Row(index, "", size, plain))
    return rows


def _cells(line: str) -> list[str]:
    if len(line) > 400:
        return []
    return [cell.strip(" \"'`*") for cell in _CELLS.split(line.strip().strip("|"))]


def _alike(lines: Sequence[str], start: int) -> list[_Row]:
    """Rows of one shape from line `start` on; a line with nothing but a time may stand above each."""
    rows: list[_Row] = []
    when: float | None = None
    for index in range(start, len(lines)):
        row = _row(lines[index], index)
        if row is None:
            when = _seconds(lines[index]) if len(lines[index]) <= 40 else None
            if when is None or (not rows and index > start):
                break
            continue
        if rows and row.shape != rows[0].shape:
            break
        rows.append(row if row.seconds is not None else _Row(index, row.shape, row.size, when))
    return rows


def _row(line: str, index: int) -> _Row | None:
    if not line or len(line) > _LONGEST or _OTHER.search(line):
        return None
    found = _POD.search(line) or _NAMED.search(line)
    if found is None:
        return None
    unit = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}.get((found.groupdict().get("unit") or "").lower(), 1)
    size = size_of(found["size"].replace(" ", ""), unit)
    if size is None or size < 1 << 20:
        return None
    return _Row(index, _BLANKS.sub(" ", _DIGITS.sub("0", line)), size, _seconds(line))


def _seconds(text: str) -> float | None:
    """The time that a text names, in seconds from whatever day; None where it names none."""
    found = _STAMP.search(text)
    if found is not None:
        if found["unix"]:
            return float(found["unix"])
        day = (found["date"] or "2000-01-01").replace("/", "-")
        try:
            return datetime.fromisoformat(f"{day} {found['time']}").replace(tzinfo=UTC).timestamp()
        except ValueError:
            return None
    age = _AGE.search(text)
    return float(age["n"]) * _UNITS[age["unit"][0].lower()] if age is not None else None
