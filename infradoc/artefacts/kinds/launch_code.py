"""Python code that starts an engine in its own process."""

from __future__ import annotations

import re
from collections.abc import Sequence

from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span
from infradoc.sources.launch import comment_facts
from infradoc.sources.launch_python import CALL, ENVIRON, call_end, code_facts, code_system, is_engine
from infradoc_rules.lazy_pattern import lazy

_LONGEST = 120  # lines of one call
_BEGIN = lazy(r"^\s*(?:\w+ ?(?:: ?[\w.\[\]]+ ?)?= ?)?(?:await |return )?(?:[\w.]{1,80}\(\s*)?$")
_IMPORT = lazy(r"^(?:from|import) (?:vllm|sglang|lmdeploy|tensorrt_llm)\b")
# Lines above a call that belong to the same piece of code.
_SCENE = lazy(
    r"^(?:(?:from|import) \w|#(?!#)|\s*os\.environ\[|\s*[A-Za-z_]\w* ?(?::[^=]{1,40})?= ?[\"'\d({\[TF]|\s*$"
    r"|if __name__|(?:async )?def \w+\([^)]*\).*:$)"
)
_SCENE_LINES = 60
_FRAME = lazy(r'^.{0,200}File "')


class LaunchCodeKind:
    """`llm = LLM(model=..., ...)` and alike, with the imports and variables beside it."""

    name = "launch_code"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """Calls that begin a statement and are closed; a traceback quotes such lines too, and keeps them."""
        found: list[Span] = []
        index = 0
        while index < len(lines):
            end = _call(lines, index)
            if end is not None:
                found.append((_above(lines, index), end))
            index = end or index + 1
        if not found:
            return []
        beside = [(at, at + 1) for at, line in enumerate(lines) if _IMPORT.match(line) or ENVIRON.match(line)]
        return _merged(sorted({*found, *beside}))

    def read(self, segment: Segment) -> Artefact:
        """The knobs that the call sets, and a GPU that a comment names."""
        text = "\n".join(segment.lines)
        facts = [*code_facts(text, segment.source), *comment_facts(text, segment.source)]
        return Artefact([], facts, [], code_system(text), 0)


def _call(lines: Sequence[str], index: int) -> int | None:
    line = lines[index]
    found = CALL.search(line) if "(" in line else None
    if found is None or not _BEGIN.match(line[: found.start()]) or (index and _FRAME.match(lines[index - 1])):
        return None
    text = "\n".join(lines[index : index + _LONGEST])
    if not _is_ours(lines, index, text, found):
        return None
    end = call_end(text)
    return None if end is None else index + text.count("\n", 0, end) + 1


def _is_ours(lines: Sequence[str], index: int, text: str, found: re.Match[str]) -> bool:
    """Whether the call is an engine's, as the code above it or its own words tell."""
    if any("lmdeploy" in line for line in lines[max(0, index - _SCENE_LINES) : index]):
        return True
    again = CALL.search(text)
    return again is not None and again.start() == found.start() and is_engine(text, again)


def _above(lines: Sequence[str], index: int) -> int:
    """Where the piece of code begins that a call ends: imports, constants and variables above it."""
    start = index
    while start and index - start < _SCENE_LINES and _SCENE.match(lines[start - 1]):
        start -= 1
    while start < index and not lines[start].strip():
        start += 1
    return start


def _merged(spans: Sequence[Span]) -> list[Span]:
    """Spans that touch or have only a blank line or two between them stay one piece of code's own."""
    out: list[Span] = []
    for start, end in spans:
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out
