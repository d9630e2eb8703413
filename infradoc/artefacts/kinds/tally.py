"""How many answers ended for which reason, counted line by line: `sort | uniq -c`, or a table of two columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from infradoc.artefacts.kinds.response_body import reason_of
from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span, runs
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event

_NAMES = r"length|stop|eos_token|tool_calls|max_tokens|stop_sequence|content_filter|abort"
_ROW = lazy(
    rf"^\s*[|\"']?\s*(?:(?P<first>\d{{1,9}})[\s|:,\"']+(?P<last>{_NAMES})|(?P<name>{_NAMES})[\s|:,\"']+(?P<count>\d{{1,9}}))"
    r"[\s|\"',]*(?:\(?\d+(?:\.\d+)?\s*%\)?)?[\s|]*$"
)


class TallyKind:
    """Rows of reasons and counts, of which one is the limit of tokens."""

    name = "tally"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """Two or more such rows that lie together."""
        if not any("length" in line or "max_tokens" in line for line in lines):
            return []
        found = runs(lines, lambda line: _row(line), at_least=2)
        return [span for span in found if any(_reason(line) == "length" for line in lines[span[0] : span[1]])]

    def read(self, segment: Segment) -> Artefact:
        """A `request_finished` for each reason, repeated as often as it was counted."""
        out = Artefact()
        for index, line in enumerate(segment.lines):
            row = _row(line)
            count = int(row["first"] or row["count"]) if row else 0
            if count:
                fields = {"reason": _reason(line)}
                out.events.append(
                    Event("request_finished", 0, fields, source=segment.place(index), text=line[:400], repeat=count)
                )
        return out


def _row(line: str) -> re.Match[str] | None:
    return _ROW.match(line) if len(line) < 120 else None


def _reason(line: str) -> str:
    row = _row(line)
    return str(reason_of(row["last"] or row["name"])) if row else ""
