"""Scores of a quantized model beside its reference, and answers written down by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence

from infradoc.artefacts.kinds.score import LOWER_IS_BETTER, Score
from infradoc.artefacts.kinds.score_tables import score_tables
from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span, runs
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact, Value

_SAMPLE = lazy(
    r"(?i)^\s*(?:[-*#]\s*)?(?:prompt|sample|case|query|question|output|answer|request|q|a|提示|问题|回答|样本|输出|请求)\s*#?\d+\s*(?:\([^()]{1,40}\)\s*)?(?:->|=>|:|：|→)\s*(?P<text>.+)$"
)
# The output of each format of one model: "model.q4_k_m   nobody nobody nobody ...".
_LABELLED = lazy(
    r"(?i)^\s*[-*|]?\s*(?:[\w./-]*(?:\b|[-_.]))?"
    r"(?P<format>awq|gptq|fp8|int[48]|nvfp4|mxfp4|i?q[1-8]_\w+|exl[23]|bnb|b?f16|[bf]p16|fp32)(?:[-.][\w./-]*)?"
    r"\s*(?:\||:|->|\s{2,}|\t)\s*(?P<text>\S.{10,})$"
)
_WHOLE = lazy(r"(?i)^(?:b?f16|[bf]p16|fp32)$")
_SPECIAL = lazy(r"^(?:\s*<(?:unk|pad|\|endoftext\||0x00)>\s*){5,}$", re.IGNORECASE)
_DECORATION = frozenset("-=_*.#~+ \n\t|")
_SAME_WORD = lazy(r"(?:^|\W)([^\W\d_]{1,12})(?:\W{1,3}\1){14,}\W*$")
_TAIL = 600  # characters of an answer's end
_RUN = 10  # equal characters; an answer of fewer may be meant


def invalid_output(text: str) -> str | None:
    """What is wrong with a generated text: "repeated" (one character only), "padding"; None when it may be language."""
    body = text.strip()
    if _SPECIAL.match(body):
        return "padding"
    used = set(body)
    if len(body) >= _RUN and len(used - {" "}) == 1 and not used & _DECORATION - {" "}:
        return "repeated"
    if _SAME_WORD.search(body[-_TAIL:]):
        return "repeated"
    tail = body[-_RUN * 4 :]
    if len(body) >= _RUN * 4 and len(set(tail)) == 1 and tail[0] in "!?@G\ufffd":
        return "repeated"
    return None


class QualityKind:
    """Evaluation tables and numbered samples."""

    name = "quality"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """Tables with a reference, tables of lm_eval, and runs of samples."""
        tables = [(start, end) for start, end, _ in score_tables(lines)]
        taken = {index for start, end in tables for index in range(start, end)}
        samples = runs(lines, _sample, at_least=2)
        kept = [span for span in samples if not taken.intersection(range(*span)) and _any_broken(lines, span)]
        return sorted(tables + kept)

    def read(self, segment: Segment) -> Artefact:
        """`eval_score` events, `output_invalid` for broken samples, and how many samples were sound."""
        out = Artefact()
        for _, _, rows in score_tables(segment.lines):
            out.events += [_event(row, segment) for row in rows]
        sound = 0
        for index, line in enumerate(segment.lines):
            found = _sample(line)
            what = invalid_output(found.group("text")) if found else None
            if what is not None and found is not None:
                fields: dict[str, Value] = {"what": what, "sample": found.group("text")[:80]}
                out.events.append(Event("output_invalid", 0, fields, source=segment.place(index), text=line[:400]))
                if (form := found.groupdict().get("format")) is not None and _WHOLE.search(form) is None:
                    out.facts.append(Fact("quant.method", form.lower(), "file", segment.place(index)))
            elif found:
                sound += 1
        if sound:
            out.facts.append(Fact("quality.samples_sound", sound, "file", segment.place(0)))
        return out


def _sample(line: str) -> re.Match[str] | None:
    """A numbered sample, or one that names the format it was made with."""
    return _SAMPLE.match(line) or _LABELLED.match(line)


def _any_broken(lines: Sequence[str], span: Span) -> bool:
    texts = [_sample(line) for line in lines[span[0] : span[1]]]
    return any(found is not None and invalid_output(found.group("text")) for found in texts)


def _event(row: Score, segment: Segment) -> Event:
    fields: dict[str, Value] = {"task": row.task, "score": row.score}
    if row.reference is not None:
        fields["reference"] = row.reference
    if row.model:
        fields["model"] = row.model
    if row.quantized is not None:
        fields["quantized"] = row.quantized
    fields["metric"] = "lower" if LOWER_IS_BETTER.search(row.task) else "higher"
    return Event("eval_score", 0, fields, source=segment.place(row.line), text=segment.lines[row.line][:400])
