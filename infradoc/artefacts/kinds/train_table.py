"""Tables of training runs.

People compare runs with one in each row: its accumulation steps, and its step time or loss. Notebooks log one run with
a step in each row: "Step | Training Loss | Validation Loss".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Value

_SECONDS = lazy(
    r"(?i)^(?:(?:s|secs?|seconds|time)\s*(?:/|per)\s*(?:it|iter|iteration|step)\b.*"
    r"|(?:step|iter(?:ation)?)[ _]?time\b.*|每步(?:耗时|时间).*|步时.*)$"
)
_MILLISECONDS = lazy(r"(?i)\bms\b|毫秒")
_LOSS = lazy(r"(?i)^(?:(?:first|initial|train(?:ing)?)[ _])*loss$|^(?:初始|训练)?损失$")
_RATE = lazy(r"(?i)^samples?\s*(?:/|per)\s*s(?:ec(?:ond)?)?$")
_ACCUMULATION = lazy(r"(?i)accum\w*|\bgas?\b|梯度累[积加]")
_COUNT = lazy(r"^\**\s*(\d{1,5})\s*\**$")
_IN_TEXT = lazy(r"(?i)(?:accum\w*|\bgas?\b|梯度累[积加]\w*)\W{0,4}(\d{1,5})\b")
_NUMBER = lazy(r"^\**\s*(\d+(?:\.\d+)?)\s*(?:ms|s|secs?)?\s*\**$")
_RULE = frozenset("|-: +")
_NOTEBOOK = lazy(r"^\W{0,4}(?P<count>Step|Epoch)\W+Training Loss\b(?P<held_out>\W+Validation Loss\b)?")
_LOGGED = lazy(r"^\W{0,4}(?P<count>\d+)[\s|]+(?P<loss>\d+\.\d+|nan|No log)(?:[\s|]+(?P<held_out>\d+\.\d+|nan))?")


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    fields: dict[str, Value]


class TrainTableKind:
    """A table with bars whose rows differ in accumulation, or the table that a notebook shows while it trains."""

    name = "train_table"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """Every such table of at least two rows."""
        return sorted([*((start, end) for start, end, _ in _tables(lines)), *_notebooks(lines)])

    def read(self, segment: Segment) -> Artefact:
        """A `train_step` for each row, with the accumulation of its run; `eval_loss` where a notebook shows it."""
        out = Artefact()
        for start, end in _notebooks(segment.lines):
            out.events += [event for index in range(start, end) for event in _logged(segment, index, start)]
        for _, _, rows in _tables(segment.lines):
            for row in rows:
                place, text = segment.place(row.line), segment.lines[row.line][:400]
                out.events.append(Event("train_step", 0, row.fields, source=place, text=text))
        return out


def _tables(lines: Sequence[str]) -> Iterator[tuple[int, int, list[_Row]]]:
    index = 0
    while index < len(lines):
        if not _has_bar(lines[index]):
            index += 1
            continue
        end = index
        while end < len(lines) and _has_bar(lines[end]):
            end += 1
        rows = _rows(lines, index, end)
        if len({row.fields["accumulation"] for row in rows}) > 1:
            yield index, end, rows
        index = end


def _has_bar(line: str) -> bool:
    return "|" in line and len(line) < 400


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _rows(lines: Sequence[str], start: int, end: int) -> list[_Row]:
    titles = _cells(lines[start])
    wanted = {"seconds": _SECONDS, "loss": _LOSS, "samples_rate": _RATE}
    columns = {name: place for name, title in wanted.items() if (place := _column(titles, title)) is not None}
    if "seconds" not in columns and "loss" not in columns:
        return []
    scale = 0.001 if "seconds" in columns and _MILLISECONDS.search(titles[columns["seconds"]]) else 1.0
    own = _column(titles, _ACCUMULATION)
    rows: list[_Row] = []
    for index in range(start + 1, end):
        cells = _cells(lines[index])
        count = None if set(lines[index].strip()) <= _RULE else _accumulation(cells, own)
        if count is None:
            continue
        fields: dict[str, Value] = {"accumulation": count}
        for name, column in columns.items():
            found = _NUMBER.match(cells[column]) if column < len(cells) else None
            if found is not None:
                fields[name] = float(found[1]) * (scale if name == "seconds" else 1.0)
        rows.append(_Row(index, fields))
    return rows


def _column(titles: Sequence[str], wanted: re.Pattern[str]) -> int | None:
    return next((index for index, title in enumerate(titles) if wanted.search(title)), None)


def _accumulation(cells: Sequence[str], own: int | None) -> int | None:
    """The steps of a row: from a column of their own, else as the row's name says."""
    if own is not None and own < len(cells) and (found := _COUNT.match(cells[own])):
        return int(found[1]) or None
    named = _IN_TEXT.search(cells[0]) if cells else None
    return (int(named[1]) or None) if named else None


def _notebooks(lines: Sequence[str]) -> list[Span]:
    """Header and rows, with a line of dashes between them or not."""
    found: list[Span] = []
    for start, line in enumerate(lines):
        if len(line) > 200 or not _NOTEBOOK.match(line):
            continue
        end = start + 1
        while end < len(lines) and (_LOGGED.match(lines[end][:200]) or set(lines[end].strip()) <= _RULE):
            end += 1
        if end > start + 1:
            found.append((start, end))
    return found


def _logged(segment: Segment, index: int, head: int) -> list[Event]:
    row, title = _LOGGED.match(segment.lines[index][:200]), _NOTEBOOK.match(segment.lines[head])
    if row is None or title is None:
        return []
    count: dict[str, Value] = {title["count"].lower(): int(row["count"])}
    place, text = segment.place(index), segment.lines[index][:400]
    out: list[Event] = []
    if row["loss"] != "No log":
        loss: Value = row["loss"] if row["loss"] == "nan" else float(row["loss"])
        out.append(Event("train_step", 0, {**count, "loss": loss}, source=place, text=text))
    if title["held_out"] and row["held_out"] not in (None, "nan"):
        out.append(Event("eval_loss", 0, {**count, "loss": float(row["held_out"])}, source=place, text=text))
    return out
