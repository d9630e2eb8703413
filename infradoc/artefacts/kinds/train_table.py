"""Tables of training runs.

People compare runs with one in each row: its accumulation steps, and its step time or loss. Notebooks log one run with
a step in each row: "Step | Training Loss | Validation Loss". A sentence may compare two runs as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact, Value

_SECONDS = lazy(
    r"(?i)^(?:(?:s|secs?|seconds|time)\s*(?:/|per)\s*(?:it|iter|iteration|step)\b.*"
    r"|(?:step|iter(?:ation)?)[ _]?time(?:_m?s)?\b.*|每步(?:耗时|时间).*|步时.*)$"
)
_MILLISECONDS = lazy(r"(?i)\bms\b|毫秒")
_LOSS = lazy(
    r"(?i)^(?:(?:first|initial|start(?:ing)?|train(?:ing)?|step \d+|\d+[- ]step|avg|mean)[ _])*loss$"
    r"|^(?:初始|训练)?损失$"
)
_RATE = lazy(r"(?i)^samples?\s*(?:/|per)\s*s(?:ec(?:ond)?)?$")
_ACCUMULATION = lazy(r"(?i)accum\w*|\bgas?\b|\bgrad(?:ient)?[ _-]?acc\b|梯度累[积加]")
_COUNT = lazy(r"^\**\s*(\d{1,5})\s*\**$")
_IN_TEXT = lazy(r"(?i)(?:accum\w*(?:[ _-]steps?)?|\bgrad[ _-]?acc|\bgas?\b|梯度累[积加]\w*)\W{0,4}(\d{1,5})\b")
# A run in a sentence: "gradient_accumulation_steps=8: 4.15 s/step", "accum 16 -> loss 19.1".
_SAID = lazy(
    r"(?i)(?:accum\w*(?:[ _-]steps?)?|\bgrad[ _-]?acc|\bgas?\b)\s?(?:=|:|of)?\s?(?P<acc>\d{1,4})\b[^;。]{1,80}?"
    r"(?:(?P<secs>\d+(?:\.\d+)?) ?(?P<unit>ms|s|secs?|seconds)(?: ?(?:/|per) ?(?:step|it\w*)\b|\b)"
    r"|loss\w*['\"]? ?(?:of|is|was|=|:|at)? ?(?P<loss>\d+\.\d+))"
)
# The same with the time in front: "9.9 s with accumulate_grad_batches=8".
_SAID_AFTER = lazy(
    r"(?i)(?<![\w.])(?P<secs>\d+(?:\.\d+)?) ?(?P<unit>ms|s|secs?|seconds)(?: ?(?:/|per) ?(?:step|it\w*))?"
    r" (?:with|at|for|under|using) \w*(?:accum\w*|grad_acc|\bgas?\b)(?:[ _-]steps?)? ?[=: ] ?(?P<acc>\d{1,4})\b"
)
_NUMBER = lazy(r"^\**\s*(\d+(?:\.\d+)?)\s*(?:ms|s|secs?)?\s*\**$")
_WORD = lazy(r"(?i)loss|损失|time|sec|[^a-z]s/|步时|耗时")
_OWN_COLUMN = lazy(
    r"(?i)^(?:grad\w*[ _-]?)?acc(?:um(?:ulat\w+)?)?(?:[ _-]?(?:steps?|iters?|batches))?$|^ga[s]?$|^梯度累[积加]\w*$"
)
_GAP = lazy(r"\t+|\s{2,}")
_NODES = lazy(r"(?i)\b(\d{1,3}) (?:nodes|machines|hosts)\b")
_LONGEST = 400
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
        return sorted([*((start, end) for start, end, _ in _tables(lines)), *_notebooks(lines), *_sentences(lines)])

    def read(self, segment: Segment) -> Artefact:
        """A `train_step` for each row, with the accumulation of its run; `eval_loss` where a notebook shows it."""
        out = Artefact()
        for start, end in _notebooks(segment.lines):
            out.events += [event for index in range(start, end) for event in _logged(segment, index, start)]
        for start, end in _sentences(segment.lines):
            nodes = next((found for line in segment.lines[start:end] if (found := _NODES.search(line))), None)
            if nodes is not None:
                out.facts.append(Fact("train.nodes", int(nodes[1]), "file", segment.place(start)))
        said = [row for start, end in _sentences(segment.lines) for row in _said(segment.lines, start, end)]
        for rows in [*(rows for _, _, rows in _tables(segment.lines)), said]:
            for row in rows:
                place, text = segment.place(row.line), segment.lines[row.line][:400]
                out.events.append(Event("train_step", 0, row.fields, source=place, text=text))
        return out


def _sentences(lines: Sequence[str]) -> list[Span]:
    """Neighbouring lines that give step times or losses of runs with different accumulation."""
    found: list[Span] = []
    index = 0
    while index < len(lines):
        end = index
        while end < len(lines) and len(lines[end]) < _LONGEST and "|" not in lines[end] and any(_runs_in(lines[end])):
            end += 1
        if end > index and len({row.fields["accumulation"] for row in _said(lines, index, end)}) > 1:
            found.append((index, end))
        index = end + 1
    return found


def _runs_in(line: str) -> Iterator[re.Match[str]]:
    """The runs of a sentence; where times stand in front of what they belong to, a time behind it is another's."""
    front = list(_SAID_AFTER.finditer(line))
    yield from front or _SAID.finditer(line)


def _said(lines: Sequence[str], start: int, end: int) -> list[_Row]:
    rows: list[_Row] = []
    for index in range(start, end):
        for place, found in enumerate(_runs_in(lines[index])):
            fields: dict[str, Value] = {"accumulation": int(found["acc"]), "step": place}  # apart on one line
            if found.groupdict().get("loss"):
                fields["loss"] = float(found["loss"])
            else:
                fields["seconds"] = float(found["secs"]) * (0.001 if found["unit"] == "ms" else 1.0)
            rows.append(_Row(index, fields))
    return rows


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
    for start in range(len(lines) - 2):
        head = lines[start]
        if "|" in head or len(head) > _LONGEST or not _ACCUMULATION.search(head) or not _WORD.search(head):
            continue
        titles = _cells(head)
        if not any(map(_OWN_COLUMN.match, titles)):  # accumulated tokens or seconds are no setting
            continue
        end = start + 1
        while end < len(lines) and len(titles) >= 2 and _is_row(lines[end], len(titles)):
            end += 1
        rows = _rows(lines, start, end)
        if len({row.fields["accumulation"] for row in rows}) > 1:
            yield start, end, rows


def _is_row(line: str, columns: int) -> bool:
    """A row of a table without bars: as many cells as the heading has, all of them numbers or short words."""
    cells = _cells(line) if len(line) < _LONGEST else []
    if line.strip() and set(line.strip()) <= _RULE:
        return True
    return len(cells) == columns and any(map(_NUMBER.match, cells))


def _has_bar(line: str) -> bool:
    return "|" in line and len(line) < 400


def _cells(line: str) -> list[str]:
    if "|" in line:
        return [cell.strip() for cell in line.strip().strip("|").split("|")]
    return [cell.strip() for cell in (line.split(",") if "," in line else _GAP.split(line.strip()))]


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
