"""The body of "Args { ... }" that TGI's launcher prints over many lines: a setting, or the value inside its `Some(`.

In a JSON record all of these lines are one message: it is claimed whole, with the mark of the start in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.patterns import LogScanner

_OPENS = lazy(r"\bArgs \{\s*$")
_WHOLE = lazy(r"\bArgs \{\s*\n")
_MARK = lazy(r"\bArgs \{")
_CLOSES = lazy(r"^\s{0,3}\}\s*$")
_MOST_LINES = 400  # the longest block so far (3.3) has some 170
_WITHIN = lazy(r"(\(|\[|\{) +")


class TgiArgsKind:
    """What stands between the braces; the line that opens them stays in the log, where it marks the start."""

    name = "tgi_args"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """The lines after the opening one, up to the closing brace."""
        found: list[Span] = []
        start = -1
        for index, line in enumerate(lines):
            if _WHOLE.search(line):
                found.append((index, index + 1))
                start = -1
            elif _OPENS.search(line):
                start = index + 1
            elif start >= 0 and _CLOSES.match(line):
                found.append((start, index + 1))
                start = -1
            elif index - start > _MOST_LINES:
                start = -1
        return [span for span in found if span[1] - span[0] > 1 or "\n" in lines[span[0]]]

    def read(self, segment: Segment) -> Artefact:
        """The facts that the same settings on one line give."""
        text = " ".join(part.strip() for line in segment.lines for part in line.split("\n"))
        scanner = LogScanner("tgi", segment.source)
        scanner.lines = segment.first_line - 1
        whole = _MARK.search(text) is not None
        events = scanner.feed(_WITHIN.sub(r"\1", text if whole else f"Args {{ {text}"))
        return Artefact(events if whole else [], list(scanner.facts.values()), system="tgi")
