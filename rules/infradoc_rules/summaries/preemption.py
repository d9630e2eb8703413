"""How often running requests lost their blocks, from warnings, statistics lines or counters.

Facts: preempt.count, preempt.per_minute? (while the log tells the time), preempt.per_finished? (infinite as 1000 when
nothing finished), preempt.thrashing, preempt.some, preempt.swapped (lines that show swapped requests),
preempt.swaps (warnings of swap mode), preempt.recomputed_ratio? (prompt tokens computed for each finished one).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries.load import fact, samples
from infradoc_rules.values import number

_PER_FINISHED = 0.2  # 0.07 was seen on a healthy busy server
_PER_MINUTE = 2.0  # one retraction a minute is how SGLang's documentation describes a well-filled pool
_MANY = 200.0  # that a running total shows where no time is known; vLLM V0 prints it with every 50th preemption
_LEAST = 3  # preemptions; one or two are no incident
_FULL = 0.95
_ENDLESS = 1000.0


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """The facts above; nothing when neither lines nor counters speak of the scheduler."""
    rows = [event for event in events if event.name == "preempted"]
    counted = fact(facts, "metrics.llm_preemptions_total")
    known = samples(events, facts)
    if not rows and counted is None and not known:
        return
    paused = _paused(events)
    count = max(_counted(rows), counted or 0.0, len(paused))
    place = facts["metrics.llm_preemptions_total"].source if counted is not None else None
    place = next((found[-1].source for found in (rows, paused) if found), place)
    yield Fact("preempt.count", count, "derived", place)
    per_minute = _per_minute(rows, events)
    if per_minute is not None:
        yield Fact("preempt.per_minute", per_minute, "derived", place)
    per_finished = _per_finished(counted, facts)
    if per_finished is not None:
        yield Fact("preempt.per_finished", per_finished, "derived", place)
    yield Fact(
        "preempt.thrashing",
        bool(paused) or _thrashing(count, rows, per_minute, per_finished, _collapsed(rows, events)),
        "derived",
        place,
    )
    yield Fact("preempt.some", count >= 1, "derived", place)
    swapped = [
        event for event in events if event.name == "stats_line" and (number(event.fields.get("swapped")) or 0) > 0
    ]
    yield Fact("preempt.swapped", len(swapped), "derived", swapped[0].source if swapped else None)
    swaps = [event for event in rows if "swap" in str(event.fields.get("mode", "")).lower()]
    yield Fact("preempt.swaps", _counted(swaps), "derived", swaps[-1].source if swaps else None)
    computed = fact(facts, "metrics.llm_prompt_tokens_total")
    finished = fact(facts, "metrics.llm_request_prompt_tokens_sum")
    if computed and finished and counted:
        yield Fact("preempt.recomputed_ratio", computed / finished, "derived", place)


def _paused(events: Sequence[Event]) -> list[Event]:
    """Lines with paused requests, where most lines have some (TensorRT-LLM, which prints no single preemption)."""
    lines = [event for event in events if event.name == "stats_line" and "paused" in event.fields]
    some = [event for event in lines if (number(event.fields["paused"]) or 0) > 0]
    return some if len(some) >= _LEAST and 2 * len(some) >= len(lines) else []


def _counted(rows: Sequence[Event]) -> float:
    """All preemptions that the lines stand for: each line's count, or the running total where they give one."""
    total = sum((number(event.fields.get("count")) or 1.0) * event.repeat for event in rows)
    return max([total, *(number(event.fields.get("cumulative")) or 0.0 for event in rows)])


def _per_minute(rows: Sequence[Event], events: Sequence[Event]) -> float | None:
    """Over the time of the statistics lines around them, at least half a minute."""
    # A running total counts from the start of the server; where the log begins with it, that is the time it took.
    total = any("cumulative" in event.fields for event in rows)
    spoken = ("stats_line", "preempted", "step_line", *(("launched", "engine_ready") if total else ()))
    times = [event.time for event in events if event.name in spoken and event.time is not None]
    if len(times) < 2 or not rows:
        return None
    return _counted(rows) / max((max(times) - min(times)) / 60, 0.5)


def _per_finished(counted: float | None, facts: Mapping[str, Fact]) -> float | None:
    finished = fact(facts, "metrics.llm_requests_finished_total")
    if counted is None or finished is None:
        return None
    return counted / finished if finished > 0 else _ENDLESS if counted > 0 else 0.0


def _collapsed(rows: Sequence[Event], events: Sequence[Event]) -> bool:
    """Whether generation fell to a third after the first preemption and stayed there, in a pool that was full."""
    known = [sample for sample in samples(events, {}) if sample.generated and sample.running > 0]
    if not rows or not any((sample.kv or 0) >= _FULL for sample in known):
        return False
    before = [sample.generated or 0.0 for sample in known if sample.event.order < rows[0].order]
    after = [sample.generated or 0.0 for sample in known if sample.event.order > rows[0].order]
    return len(before) >= 2 and len(after) >= 3 and 3 * median(after) < median(before)


def _thrashing(
    count: float, rows: Sequence[Event], per_minute: float | None, per_finished: float | None, collapsed: bool
) -> bool:
    if count < _LEAST:
        return count >= 1 and collapsed
    if per_finished is not None:
        return per_finished > _PER_FINISHED
    if per_minute is not None:
        return per_minute > _PER_MINUTE
    return len(rows) >= _LEAST or count >= _MANY
