"""Logs that a collector, a notebook or a recorder saved as one document: its lines, oldest first.

Read: JSON of Loki, Elasticsearch, CloudWatch, Google and Azure, notebooks, recordings of asciinema, tables of records
(CSV). What else is JSON (settings, answers, scores) is left to the kinds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from infradoc.artefacts.records import record, time_of
from infradoc_rules.lazy_pattern import lazy

_DEEPEST = 8
_LOOK = 200  # lines that tell
_PAYLOAD = ("textPayload:", "jsonPayload:")
_FILLED = lazy(r"\S")
_LEAST = 0.5  # of the values of a list must be records, and of a text's lines those of a recording
_MESSAGE_COLUMNS = ("message", "log", "line", "textpayload", "@message", "_raw", "msg", "content", "body", "log_line")
_TIME_COLUMNS = ("timestamp", "@timestamp", "time", "date", "_time", "ts", "receivetimestamp", "tsns")
_MANIFESTS = ("apiVersion", "kind")  # of Kubernetes: what its conditions say is no log
_ANSWERS = ("choices", "object", "prompt", "messages", "generated_text", "log_history")

Dated = tuple[float | None, str]


def exported(lines: Sequence[str]) -> list[str] | None:
    """The log lines that a text holds when it is such a document as a whole; None when it is none."""
    first = next((line.lstrip() for line in lines if line.strip()), "")
    if first[:1] in ("{", "["):
        return _recorded(lines) or _document("\n".join(lines), first)
    if first.rstrip() == "---" and any(line.startswith(_PAYLOAD) for line in lines[:_LOOK]):
        return _documents("\n".join(lines))
    if "," in first and any(name in first.lower() for name in _MESSAGE_COLUMNS):
        return _table(lines)
    return None


def _document(text: str, first: str) -> list[str] | None:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        return _in_row(text) if error.msg == "Extra data" and first.strip() == "{" else None
    except (ValueError, RecursionError):
        return None
    if isinstance(data, dict) and any(key in data for key in (*_ANSWERS, *_MANIFESTS)):
        return None
    if isinstance(data, dict) and isinstance(data.get("cells"), list):
        return list(_cells(data["cells"])) or None
    if isinstance(data, dict) and record(data) is not None:
        return None  # one record of many: the lines are read one by one
    found = list(_records(data, 0))
    return _in_order(found) if found else None


def _in_row(text: str) -> list[str] | None:
    """Records of several lines each, one behind the other: `journalctl -o json-pretty`, `jq`."""
    decoder, at = json.JSONDecoder(), 0
    found: list[Dated] = []
    while at < len(text):
        try:
            data, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        one = record(data) if isinstance(data, dict) else None
        if one is None:
            return None
        found.append(one)
        at = _filled(text, end)
    return _in_order(found) if found else None


def _filled(text: str, at: int) -> int:
    """The place of the next character that is no blank."""
    found = _FILLED.search(text, at)
    return found.start() if found is not None else len(text)


def _documents(text: str) -> list[str] | None:
    """Records as `gcloud logging read` prints them: YAML, a document each."""
    import yaml

    try:
        rows = list(yaml.load_all(text, Loader=yaml.BaseLoader))
    except (yaml.YAMLError, RecursionError):
        return None
    found = [one for row in rows if isinstance(row, dict) and (one := record(row)) is not None]
    return _in_order(found) if found else None


def _records(data: Any, depth: int) -> Iterator[Dated]:
    """The records anywhere in a document."""
    if depth > _DEEPEST:
        return
    if isinstance(data, dict):
        if (found := record(data)) is not None and depth:
            yield found
            return
        for value in data.values():
            if isinstance(value, dict | list):
                yield from _records(value, depth + 1)
    elif isinstance(data, list):
        if (pairs := _pairs(data)) is not None:
            yield from pairs
            return
        for value in data:
            if isinstance(value, dict | list):
                yield from _records(value, depth + 1)


def _pairs(data: Sequence[Any]) -> list[Dated] | None:
    """Loki's values: [["1772618400000000000", "the line"], ...]."""
    pairs = [
        one for one in data if isinstance(one, list) and len(one) in (2, 3) and all(isinstance(s, str) for s in one[:2])
    ]
    if not pairs or len(pairs) < len(data):
        return None
    found = [(time_of(stamp), text.rstrip("\r\n")) for stamp, text, *_ in pairs]
    return found if all(when is not None for when, _ in found) else None


def _in_order(found: Sequence[Dated]) -> list[str]:
    """The messages, oldest first: a collector shows the newest first, and streams one after another."""
    times = [when for when, _ in found if when is not None]
    if len(times) == len(found):
        first, last = times[0], times[-1]
        rows = list(found) if first <= last else list(reversed(found))  # of equal times the order is kept
        found = sorted(rows, key=lambda row: row[0] or 0.0)
    return [line for _, text in found for line in text.split("\n")]


def _cells(cells: Sequence[Any]) -> Iterator[str]:
    """A notebook's code and what it printed."""
    for cell in cells:
        if not isinstance(cell, dict):
            continue
        if cell.get("cell_type") == "code":
            yield from _text(cell.get("source"))
        for output in cell.get("outputs") or ():
            if isinstance(output, dict):
                data = output.get("data")
                shown = data.get("text/plain") if isinstance(data, dict) else None
                yield from _text(output.get("text") or output.get("traceback") or shown)


def _text(value: Any) -> Iterator[str]:
    """A text of a notebook: one, or a list of lines."""
    if isinstance(value, list):
        value = "".join(one if one.endswith("\n") else one + "\n" for one in value if isinstance(one, str))
    if isinstance(value, str):
        yield from value.rstrip("\n").split("\n")


def _recorded(lines: Sequence[str]) -> list[str] | None:
    """A recording of asciinema: a header, then [seconds, "o", "what was printed"]."""
    if '"version"' not in lines[0] or len(lines) < 2 or not lines[1].startswith("["):
        return None
    printed: list[str] = []
    for line in lines[1:]:
        try:
            row = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            continue
        if isinstance(row, list) and len(row) == 3 and row[1] == "o" and isinstance(row[2], str):
            printed.append(row[2])
    text = "".join(printed).replace("\r\n", "\n")
    return text.split("\n") if len(printed) >= _LEAST * (len(lines) - 1) else None


def _table(lines: Sequence[str]) -> list[str] | None:
    """Records of a CSV file whose header names a message and a time."""
    import csv
    import io

    reader = csv.reader(io.StringIO("\n".join(lines), newline=""))
    try:
        header = [name.strip().strip("\ufeff").lower() for name in next(reader)]
        message = next((header.index(name) for name in _MESSAGE_COLUMNS if name in header), None)
        when = next((header.index(name) for name in _TIME_COLUMNS if name in header), None)
        if message is None or when is None:
            return None
        rows = [row for row in reader if len(row) > max(message, when)]
    except (csv.Error, StopIteration):
        return None
    return _in_order([(time_of(row[when]), row[message].rstrip("\r\n")) for row in rows]) or None
