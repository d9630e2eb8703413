"""What clients sent and got back: JSON bodies, streams, objects as Python prints them, exceptions of client libraries.

request_sent              a request body: how long its text is, what it asks of the output, whether it asks to be cut
request_finished          an answer: usage, why it ended, whether it is empty
request_truncated         an answer that says that its prompt was cut
request_rejected_length   a refusal for a length, of whichever engine
request_rejected_load     a refusal for load
output_invalid            an answer that is no language
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from infradoc.artefacts.kinds import response_body, response_line
from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span, json_spans
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event

_SIGNS = (
    "eason",  # finish_reason, stop reasons, ...
    "finish=",
    "limit",
    "natural stopping point",
    "Counter({",
    "generated_text",
    '"error"',
    "'error'",
    '"detail"',
    '"message"',
    "Error code: 4",
    "max_tokens",
    "max_new_tokens",
    '"prompt"',
    '"messages"',
    "num_predict",
    "num_ctx",
    "truncated",
    "meta_info",
    "ContextWindow",
    "BadRequestError",
    "exceed",
)
_STREAM = lazy(r"^data: (\{.*\})\s*$")
_MOST = 5_000  # bodies of one text


class ResponseKind:
    """Requests and answers as a client sees them."""

    name = "response"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """JSON values of an API, lines of a stream, and lines that quote an answer's end or a client's exception."""
        if not any(sign in line for line in lines for sign in _SIGNS):
            return []
        found = json_spans(lines, response_body.is_body)
        taken = {index for start, end in found for index in range(start, end)}
        for index, line in enumerate(lines):
            if index not in taken and (_STREAM.match(line) or response_line.telling(line)):
                found.append((index, index + 1))
        return _joined(sorted(found))

    def read(self, segment: Segment) -> Artefact:
        """Events of each body and line, in order."""
        out = Artefact()
        for index, text, value in list(_parts(segment.lines))[:_MOST]:
            found = response_line.events(text) if value is None else response_body.events(value)
            place, shown = segment.place(index), " ".join(text.split())[:400]
            out.events += [Event(e.name, 0, e.fields, None, None, place, shown, repeat=e.repeat) for e in found]
            out.unparsed += not found
        return out


def _joined(spans: Sequence[Span]) -> list[Span]:
    """Ranges that touch as one: the answers of one file are one story."""
    out: list[Span] = []
    for start, end in spans:
        if out and out[-1][1] >= start:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


def _parts(lines: Sequence[str]) -> Iterator[tuple[int, str, object]]:
    """(index, text, JSON value or None) of each body and each other line."""
    bodies = dict(json_spans(lines, response_body.is_body))
    index = 0
    while index < len(lines):
        end = bodies.get(index)
        if end is not None:
            text = "\n".join(lines[index:end])
            yield index, text, json.loads(text)
            index = end
            continue
        stream = _STREAM.match(lines[index])
        value = None
        if stream is not None:
            try:
                value = json.loads(stream[1])
            except (ValueError, RecursionError):
                value = None
        if lines[index].strip() and (value is None or response_body.is_body(value)):
            yield index, lines[index], value
        index += 1
