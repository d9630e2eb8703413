"""Scores of a quantized model beside its reference, and answers written down by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span, runs
from infradoc_rules.model import Event, Fact, Value

_REFERENCE = re.compile(
    r"(?i)\b(?:ref(?:erence)?|base(?:line)?|original|official|bf16|fp16|fp32|bfloat16|float16|full[ _]precision"
    r"|unquantized|expected|published|reported|before|vanilla)\b|base_|原始|基线|官方"
)
_QUANTIZED = re.compile(
    r"(?i)awq|gptq|fp8|int8|int4|w4a16|w8a8|w4a8|nvfp4|mxfp4|\bq[2-8]_|\bquant|-quant|measured|served|\bours\b|after"
    r"|量化|实测|bnb|4bit|8bit|4-bit|8-bit"
)
_TASK = re.compile(
    r"(?i)^\s*\|?\s*(?:task|tasks|benchmark|metric|dataset|eval|bench|test|model|acc|variant|评测|任务)\b"
)
_LM_EVAL = re.compile(
    r"^\|\s*(?P<task>[\w./ -]*?)\s*\|.*\|(?P<metric>[\w,@.-]+)\s*\|\s*[↑↓]?\s*\|\s*(?P<score>[\d.]+)\s*\|\s*±"
)
_LM_MODEL = re.compile(r"\b(?:pretrained|model|path|checkpoint)=(?P<model>[^,)\s]+)(?P<rest>[^)]*)")
_SAMPLE = re.compile(
    r"(?i)^\s*(?:[-*#]\s*)?(?:prompt|sample|case|query|question|output|answer|request|q|a)\s*#?\d+\s*(?:->|=>|:|：|→)\s*(?P<text>.+)$"
)
_CELL = re.compile(r"\s*\|\s*|\t+|\s{2,}")
_NUMBER = re.compile(r"^\*{0,2}(?P<n>\d+(?:\.\d+)?)\s*%?\*{0,2}$")
_LOWER_IS_BETTER = re.compile(r"(?i)ppl|perplexity|wer\b|loss|bits_per_byte")
_SPECIAL = re.compile(r"^(?:\s*<(?:unk|pad|\|endoftext\||0x00)>\s*){5,}$", re.IGNORECASE)
_DECORATION = frozenset("-=_*.#~+ \n\t|")
_RUN = 10  # equal characters; an answer of fewer may be meant


def invalid_output(text: str) -> str | None:
    """What is wrong with a generated text: "repeated" (one character only), "padding"; None when it may be language."""
    body = text.strip()
    if _SPECIAL.match(body):
        return "padding"
    used = set(body)
    if len(body) >= _RUN and len(used - {" "}) == 1 and not used & _DECORATION - {" "}:
        return "repeated"
    tail = body[-_RUN * 4 :]
    if len(body) >= _RUN * 4 and len(set(tail)) == 1 and tail[0] in "!?@G\ufffd":
        return "repeated"
    return None


@dataclass(frozen=True, slots=True)
class _Score:
    line: int
    task: str
    score: float
    reference: float | None = None
    model: str = ""
    quantized: bool | None = None


class QualityKind:
    """Evaluation tables and numbered samples."""

    name = "quality"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """Tables with a reference, tables of lm_eval, and runs of samples."""
        tables = [(start, end) for start, end, _ in _tables(lines)]
        taken = {index for start, end in tables for index in range(start, end)}
        samples = runs(lines, _SAMPLE.match, at_least=2)
        kept = [span for span in samples if not taken.intersection(range(*span)) and _any_broken(lines, span)]
        return sorted(tables + kept)

    def read(self, segment: Segment) -> Artefact:
        """`eval_score` events, `output_invalid` for broken samples, and how many samples were sound."""
        out = Artefact()
        for _, _, rows in _tables(segment.lines):
            out.events += [_event(row, segment) for row in rows]
        sound = 0
        for index, line in enumerate(segment.lines):
            found = _SAMPLE.match(line)
            what = invalid_output(found.group("text")) if found else None
            if what is not None and found is not None:
                fields: dict[str, Value] = {"what": what, "sample": found.group("text")[:80]}
                out.events.append(Event("output_invalid", 0, fields, source=segment.place(index), text=line[:400]))
            elif found:
                sound += 1
        if sound:
            out.facts.append(Fact("quality.samples_sound", sound, "file", segment.place(0)))
        return out


def _any_broken(lines: Sequence[str], span: Span) -> bool:
    texts = [_SAMPLE.match(line) for line in lines[span[0] : span[1]]]
    return any(found is not None and invalid_output(found.group("text")) for found in texts)


def _event(row: _Score, segment: Segment) -> Event:
    fields: dict[str, Value] = {"task": row.task, "score": row.score}
    if row.reference is not None:
        fields["reference"] = row.reference
    if row.model:
        fields["model"] = row.model
    if row.quantized is not None:
        fields["quantized"] = row.quantized
    fields["metric"] = "lower" if _LOWER_IS_BETTER.search(row.task) else "higher"
    return Event("eval_score", 0, fields, source=segment.place(row.line), text=segment.lines[row.line][:400])


def _tables(lines: Sequence[str]) -> Iterator[tuple[int, int, list[_Score]]]:
    """(start, end, scores) of each table."""
    index = 0
    while index < len(lines):
        for reader in (_beside, _lm_eval, _listed):
            end, rows = reader(lines, index)
            if rows:
                yield index, end, rows
                index = end
                break
        else:
            index += 1


def _cells(line: str) -> list[str]:
    return [cell for cell in _CELL.split(line.strip().strip("|").strip()) if cell]


def _beside(lines: Sequence[str], start: int) -> tuple[int, list[_Score]]:
    """A table whose columns, or whose rows, are the quantized model and its reference."""
    head = lines[start]
    titles = _cells(head) if len(head) < 300 and _TASK.match(head) else []
    if len(titles) < 2 or any(_NUMBER.match(title) for title in titles):
        return start, []
    body: list[tuple[int, list[str]]] = []
    end = start + 1
    while end < len(lines) and (cells := _cells(lines[end])):
        if set(lines[end].strip()) <= set("|-: +"):
            end += 1
            continue
        if len(cells) < 2 or not any(_NUMBER.match(cell) for cell in cells[1:]):
            break
        body.append((end, cells))
        end += 1
    columns = _by_column(titles, body)
    rows = columns or _by_row(titles, body)
    return end, rows


def _by_column(titles: Sequence[str], body: Sequence[tuple[int, list[str]]]) -> list[_Score]:
    named = [index for index in range(1, len(titles)) if _REFERENCE.search(titles[index])]
    others = [index for index in range(1, len(titles)) if index not in named]
    chosen = next((index for index in others if _QUANTIZED.search(titles[index])), others[0] if others else None)
    if not named or chosen is None:
        return []
    rows = []
    for line, cells in body:
        mine, ref = _value(cells, chosen), _value(cells, named[0])
        if mine is not None and ref is not None:
            rows.append(_Score(line, cells[0], mine, ref, titles[chosen], True))
    return rows


def _by_row(titles: Sequence[str], body: Sequence[tuple[int, list[str]]]) -> list[_Score]:
    base = next((cells for _, cells in body if _REFERENCE.search(cells[0]) and not _QUANTIZED.search(cells[0])), None)
    if base is None:
        return []
    rows = []
    for line, cells in body:
        if not _QUANTIZED.search(cells[0]):
            continue
        for column in range(1, min(len(titles), len(cells))):
            mine, ref = _value(cells, column), _value(base, column)
            if mine is not None and ref is not None:
                rows.append(_Score(line, titles[column], mine, ref, cells[0], True))
    return rows


def _value(cells: Sequence[str], column: int) -> float | None:
    found = _NUMBER.match(cells[column]) if column < len(cells) else None
    return float(found.group("n")) if found else None


def _lm_eval(lines: Sequence[str], start: int) -> tuple[int, list[_Score]]:
    """One table of lm_eval, from the line above it that names the model on; a table without one is also read."""
    first = _first_row(lines, start)
    if first is None:
        return start, []
    above = lines[start][:400] if not lines[start].lstrip().startswith("|") else ""
    named = _LM_MODEL.search(above)
    model = (named.group() if named else above.strip().rstrip(":"))[:160]
    rows: list[_Score] = []
    end, task = first, ""
    while end < len(lines) and lines[end].strip().startswith("|"):
        found = _LM_EVAL.match(lines[end].strip())
        if found is not None:
            task = found.group("task").strip() or task
            name = f"{task} {found.group('metric')} {_filter(lines[end])}".strip()
            rows.append(_Score(end, name, float(found.group("score")), None, model, bool(_QUANTIZED.search(model))))
        end += 1
    return end, rows


def _first_row(lines: Sequence[str], start: int) -> int | None:
    """The first row of scores of the table that `start` opens: itself, or at most three lines below."""
    for index in range(start, min(start + 4, len(lines))):
        line = lines[index].strip()
        if _LM_EVAL.match(line):
            return index
        if index > start and line and not line.startswith("|"):
            return None
    return None


def _filter(line: str) -> str:
    cells = [cell.strip() for cell in line.split("|")]
    return next((cell for cell in cells if cell.endswith(("-extract", "-match"))), "")


_CAPTION = re.compile(r"^\s*(?P<name>[^|{}\[\]]{2,60}?)\s*(?:results?|scores?|结果)?\s*[:：]\s*$")
_ITEM = re.compile(
    r"^\s*[-*>]?\s*(?P<task>[A-Za-z][\w ./-]{1,40}?)\s*[:：=]\s*(?P<score>\d+(?:\.\d+)?)\s*%?"
    r"(?:\s*[,(（]?\s*(?:vs\.?|official|reference|baseline|bf16|fp16|base)\s*[:=]?\s*(?P<ref>\d+(?:\.\d+)?).*)?$"
)


def _listed(lines: Sequence[str], start: int) -> tuple[int, list[_Score]]:
    """`caption:` and then `task: score` lines, or `task: score (official: score)`."""
    caption = _CAPTION.match(lines[start]) if len(lines[start]) < 160 else None  # blanks part in many ways there
    name = caption.group("name") if caption else ""
    end = start + 1 if caption else start
    known = bool(_QUANTIZED.search(name) or _REFERENCE.search(name))
    rows: list[_Score] = []
    while end < len(lines) and len(lines[end]) < 160 and (found := _ITEM.match(lines[end])):
        ref = found.group("ref")
        if not known and ref is None:
            break
        quantized = True if ref is not None else bool(_QUANTIZED.search(name))
        rows.append(
            _Score(
                end,
                found.group("task"),
                float(found.group("score")),
                None if ref is None else float(ref),
                name,
                quantized,
            )
        )
        end += 1
    return end, rows
