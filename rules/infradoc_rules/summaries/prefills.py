"""What prompts do to a server, from its prefill lines: their rate, their size beside answers, decodes that wait."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from statistics import median

from infradoc_rules.model import Event
from infradoc_rules.summaries.load import Sample
from infradoc_rules.values import number

_STALL = 0.1  # of the best generation rate
_PREFILLS = 5  # prefill lines between two decode lines: in a mixed load one to three stand there
_PROMPT_LINES = 8  # of prefill without a decode line between them; SGLang prints one each forty decode steps


def prefilled(events: Sequence[Event]) -> float | None:
    """Prompt tokens a second of prefill lines, where statistics lines do not give them (SGLang)."""
    rows = [(event, number(event.fields.get("prefill_tokens"))) for event in events if event.name == "step_line"]
    times = [event.time for event, tokens in rows if tokens and event.time is not None]
    if len(times) < 3 or times[-1] <= times[0]:
        return None
    return sum(tokens or 0.0 for _, tokens in rows) / (times[-1] - times[0])


def prompts_only(busy: Sequence[Sample], events: Sequence[Event]) -> float | None:
    """Prompt tokens for each request of prefill lines between which nothing decodes: a request made one token."""
    rows = [event for event in events if event.name == "step_line" and number(event.fields.get("prefill_requests"))]
    decodes = any(event.name == "stats_line" or number(event.fields.get("decode_requests")) for event in events)
    if decodes or len(rows) < _PROMPT_LINES or median(sample.running for sample in busy) > 0:
        return None
    asked = sum(number(event.fields.get("prefill_requests")) or 0.0 for event in rows)
    return sum(number(event.fields.get("prefill_tokens")) or 0.0 for event in rows) / max(asked, 1.0)


def prompt_size(events: Sequence[Event]) -> float | None:
    """Tokens computed for each new sequence, the median of prefill lines; None with fewer than three such lines."""
    sizes = [
        tokens / sequences
        for event in events
        if event.name == "step_line"
        and (tokens := number(event.fields.get("prefill_tokens")))
        and (sequences := number(event.fields.get("prefill_requests")))
    ]
    return median(sizes) if len(sizes) >= 3 else None


def stalls(running: Sequence[Sample]) -> list[Sample]:
    """Lines on which prompts are computed at full speed and next to nothing is generated, after better ones."""
    best, busiest, out = 0.0, 0.0, []
    for sample in running:
        made, prompt = sample.generated, sample.prompt
        if made is None or prompt is None:
            continue
        low = best > 10 and made <= _STALL * best and prompt >= max(0.8 * busiest, 10 * made, 100)
        if low and (sample.kv or 0) < 0.9:
            out.append(sample)
        best, busiest = max(best, made), max(busiest, prompt)
    return out


def chunk(events: Sequence[Event]) -> float | None:
    """The step budget as it shows: the most prompt tokens of a step, where several steps took just as many."""
    sizes = [number(event.fields.get("prefill_tokens")) or 0.0 for event in events if event.name == "step_line"]
    most = max(sizes, default=0.0)
    return most if most >= 256 and sizes.count(most) >= 3 else None


def starved_decodes(running: Sequence[Sample], events: Sequence[Event]) -> list[Sample]:
    """Decode lines of a rate far below an earlier one, each after a run of prefill lines (SGLang: prompts go first)."""
    orders = [
        event.order for event in events if event.name == "step_line" and number(event.fields.get("prefill_tokens"))
    ]
    best, last, out = 0.0, None, []
    for sample in running:
        made, order = sample.generated, sample.event.order
        between = 0 if last is None else bisect_left(orders, order) - bisect_right(orders, last)
        if made is not None and best > 10 and made <= _STALL * best and between >= _PREFILLS and (sample.kv or 0) < 0.9:
            out.append(sample)
        best, last = max(best, made or 0.0), order
    return out
