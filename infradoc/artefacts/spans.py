"""Helpers for `spans` of an artefact kind: which line ranges of a mixed text are surely of that kind.

All return half-open ranges [start, end) of line indexes, in order and apart from each other, in linear time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from infradoc_rules.lazy_pattern import lazy

Span = tuple[int, int]
Test = Callable[[str], object]

JSON_LINES = 20_000  # a JSON value over more lines than this is no answer that somebody pasted
_TRIES = 200  # openings of JSON values that are followed to their end
_KEY = lazy(r"^ *(?:- +)?(?:[\w./-]+|\"[^\"]{1,80}\"|'[^']{1,80}'):(?: |$)")
_CONTINUES = lazy(r"(?:\\|[ \t][`^])\s*$")
_LEVEL = lazy(r"^(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL|FATAL): ")  # a line of a log, and no key
_ITEM = lazy(r"^ *- ")
_BRACKETS = lazy(r'"(?:[^"\\]|\\.)*"?|[{}\[\]]')


def runs(lines: Sequence[str], mine: Test, gap: int = 0, at_least: int = 1) -> list[Span]:
    """Runs of lines that `mine` accepts, with at most `gap` others in a row inside; at least `at_least` of its own."""
    found: list[Span] = []
    start = last = -1
    count = 0
    for index, line in enumerate(lines):
        if not mine(line):
            continue
        if start >= 0 and index - last - 1 > gap:
            if count >= at_least:
                found.append((start, last + 1))
            start, count = index, 0
        if start < 0:
            start = index
        last, count = index, count + 1
    if start >= 0 and count >= at_least:
        found.append((start, last + 1))
    return found


def command_spans(lines: Sequence[str], starts: Test) -> list[Span]:
    """Shell commands whose first line `starts` accepts, with their continuation lines.

    A line goes on after a backslash at its end, in PowerShell after a backtick, in cmd after a caret.

    A first line may also be preceded by continued lines, such as `CUDA_VISIBLE_DEVICES=0 \\`.
    """
    found: list[Span] = []
    index, begun = 0, -1
    while index < len(lines):
        line = lines[index].rstrip()
        if starts(line):
            start = begun if begun >= 0 else index
            while _CONTINUES.search(lines[index]) and index + 1 < len(lines):
                index += 1
            found.append((start, index + 1))
            begun = -1
        elif _CONTINUES.search(line):
            begun = index if begun < 0 else begun
        else:
            begun = -1
        index += 1
    return found


def json_spans(lines: Sequence[str], wanted: Callable[[object], object]) -> list[Span]:
    """JSON values that begin at the start of a line and that `wanted` accepts (it is handed the parsed value)."""
    found: list[Span] = []
    index = tries = 0
    while index < len(lines) and tries < _TRIES:
        end = _json_end(lines, index) if lines[index].lstrip()[:1] in ("{", "[") else None
        if end is None:
            index += 1
            continue
        tries += 1
        try:
            value = json.loads("\n".join(lines[index:end]))
        except (ValueError, RecursionError):
            index += 1
            continue
        if wanted(value):
            found.append((index, end))
        index = end
    return found


def _json_end(lines: Sequence[str], start: int) -> int | None:
    """The line after the one on which the value that opens at `start` closes, when nothing follows it there."""
    depth = 0
    for index in range(start, min(len(lines), start + JSON_LINES)):
        for match in _BRACKETS.finditer(lines[index]):
            mark = match.group()
            if mark[0] == '"':
                continue
            depth += 1 if mark in "{[" else -1
            if depth == 0:
                return index + 1 if not lines[index][match.end() :].strip() else None
        if depth == 0:
            return None
    return None


def yaml_spans(lines: Sequence[str], wanted: Callable[[Sequence[str]], object]) -> list[Span]:
    """Runs of lines that look like one YAML mapping (keys, list items, deeper lines, comments) that `wanted` accepts.

    `---` parts documents. Lines are not parsed here: `wanted` sees the text and may do so.
    """
    found: list[Span] = []
    start = -1
    for index in range(len(lines) + 1):
        line = lines[index] if index < len(lines) else "---"
        if start >= 0 and not _yaml_goes_on(line):
            if wanted(lines[start:index]):
                found.append((start, index))
            start = -1
        if (
            start < 0
            and index < len(lines)
            and _KEY.match(line)
            and not line.startswith(" ")
            and not _LEVEL.match(line)
        ):
            start = index
    return found


def _yaml_goes_on(line: str) -> bool:
    if line.startswith(("---", "###", "- [ ]", "- [x]")) or _LEVEL.match(line):  # the rest of an issue's template
        return False
    return not line.strip() or line.startswith((" ", "#", "\t")) or bool(_KEY.match(line) or _ITEM.match(line))
