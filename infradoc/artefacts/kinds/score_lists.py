"""Scores in lists: tables of lm_eval, captions with tasks below them, and lines that name the format themselves.

A reader takes the lines and where to begin, and gives the end of what it read and its scores.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from infradoc.artefacts.kinds.score import LOWER_IS_BETTER, QUANTIZED, REFERENCE, Score
from infradoc_rules.lazy_pattern import lazy

_LM_EVAL = lazy(
    r"^\|\s*(?P<task>[\w./ -]*?)\s*\|.*\|\s*(?P<metric>[a-zA-Z_][\w,@.-]*)\s*\|"
    r"(?:\s*[↑↓]?\s*\|)?\s*(?P<score>[\d.]+)\s*\|\s*±"
)
_LM_MODEL = lazy(r"\b(?:pretrained|model|path|checkpoint)=(?P<model>[^,)\s]+)(?P<rest>[^)]*)")
_CAPTION = lazy(r"^\s*(?P<name>[^|{}\[\]]{2,60}?)\s*(?:results?|scores?|结果)?\s*[:：]\s*$")
_ITEM = lazy(
    r"^\s*[-*>]?\s*(?P<task>[A-Za-z][\w ./-]{1,40}?)\s*[:：=]\s*(?P<score>\d+(?:\.\d+)?)\s*%?"
    r"(?:\s*[,(（]?\s*(?:vs\.?|official|reference|baseline|bf16|fp16|base)\s*[:=]?\s*(?P<ref>\d+(?:\.\d+)?).*)?$"
)
# The same with the format in brackets: "reference (fp16): 78.4".
_BRACKETED = lazy(r"^\s*[-*>]?\s*(?P<task>[A-Za-z][\w ./()-]{1,40}?)\s*[:：=]\s*(?P<score>\d+(?:\.\d+)?)\s*%?\s*$")
_NAMED = lazy(
    r"(?i)^\s*[-*>]?\s*(?P<label>[A-Za-z][\w ./-]{1,40}?)\s*[:：]\s*(?P<metric>ppl|perplexity|acc(?:uracy)?|score)"
    r"\s*[:=]?\s*(?P<score>\d+(?:\.\d+)?)\s*%?\s*$"
)
_FORMAT = lazy(
    r"(?i)(?:int[48][-_ ]?)?\b(?:awq|gptq|fp8|int4|int8|w4a16|w8a8|nvfp4|mxfp4|q[2-8]_\w+)"
    r"(?:[-_ ]?(?:int)?[48](?:[-_ ]?bits?)?)?\b|\b[2348]-?bits?\b"
)
# A row below a heading that names the metric: "fp16   5.68".
_ROW = lazy(r"^\s*[-*>]?\s*(?P<task>\w[\w ./()-]{1,40}?)(?:\s{2,}|\t)\s*(?P<score>\d+(?:\.\d+)?)\s*%?\s*$")
_SIDE = lazy(r"(?i)\b(?:reference|ref|baseline|base|original|model|quanti[sz]ed|ours)\b|[()]")  # which of the two it is
_HEADING = 60  # characters of a line that says what the numbers below it are
_AUTO = lazy(r"\bauto\b")
_WHOLE = lazy(r"(?i)\b(?:bf16|fp16|fp32|bfloat16|float16|unquantized|original|baseline)\b")


def lm_eval(lines: Sequence[str], start: int) -> tuple[int, list[Score]]:
    """One table of lm_eval, from the line above it that names the model on; a table without one is also read."""
    first = _first_row(lines, start)
    if first is None:
        return start, []
    above = lines[start][:400] if not lines[start].lstrip().startswith("|") else ""
    named = _LM_MODEL.search(above)
    model = (named.group() if named else above.strip().rstrip(":"))[:160]
    rows: list[Score] = []
    end, task = first, ""
    while end < len(lines) and lines[end].strip().startswith("|"):
        found = _LM_EVAL.match(lines[end].strip())
        if found is not None:
            task = found.group("task").strip() or task
            name = f"{task} {found.group('metric')} {_filter(lines[end])}".strip()
            rows.append(Score(end, name, float(found.group("score")), None, model, bool(QUANTIZED.search(model))))
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


def listed(lines: Sequence[str], start: int) -> tuple[int, list[Score]]:
    """`caption:` and then `task: score` lines, or `task: score (official: score)`."""
    caption = _CAPTION.match(lines[start]) if len(lines[start]) < 160 else None  # blanks part in many ways there
    name = caption.group("name") if caption else ""
    end = start + 1 if caption else start
    known = bool(QUANTIZED.search(name) or REFERENCE.search(name))
    rows: list[Score] = []
    while end < len(lines) and len(lines[end]) < 160 and (found := _ITEM.match(lines[end])):
        ref = found.group("ref")
        if not known and ref is None:
            break
        quantized = True if ref is not None else bool(QUANTIZED.search(name))
        rows.append(
            Score(
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


def _item(line: str) -> re.Match[str] | None:
    """A task and its score; where the metric stands behind the label, as if it stood before the colon."""
    named = _NAMED.match(line)
    if named is not None:
        return _ITEM.match(f"{named['label']} {named['metric']}: {named['score']}")
    return _ITEM.match(line) or _BRACKETED.match(line)


def labelled(lines: Sequence[str], start: int) -> tuple[int, list[Score]]:
    """Lines that name format, task and score: "bf16 gsm8k accuracy: 0.812", "awq gsm8k accuracy: 0.533".

    The metric may stand behind the colon: "AWQ: ppl 9.1", or in a line of its own above.
    """
    rows: list[Score] = []
    head = lines[start] if len(lines[start]) < _HEADING else ""
    headed = LOWER_IS_BETTER.search(head) is not None and _item(head) is None
    end = start + 1 if headed else start
    while end < len(lines) and len(lines[end]) < 160:
        found = _item(lines[end]) or (_ROW.match(lines[end]) if headed else None)
        if found is None:
            break
        label = found.group("task")
        quantized = _FORMAT.search(label)
        cache = "kv" in label.lower()
        named = quantized or _WHOLE.search(label) or (_AUTO.search(label) if cache else None)
        if named is None or found.groupdict().get("ref") is not None:
            break
        model = f"kv_cache={named.group()}" if cache else named.group()
        rest = _SIDE.sub(" ", label[: named.start()] + " " + label[named.end() :])
        task = " ".join([*rest.split(), *(("perplexity",) if headed else ())]) or "score"
        rows.append(Score(end, task, float(found.group("score")), None, model, quantized is not None))
        end += 1
    tasks = [{row.task for row in rows if row.quantized is quantized} for quantized in (True, False)]
    return (end, rows) if tasks[0] & tasks[1] else (start, [])
