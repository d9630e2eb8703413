"""Servers with numbered slots (llama.cpp and what is built on it): how many were ever busy at once.

Facts (where the log tells of slots): slots.count?, slots.most_busy, slots.refilled (starts at the peak that followed a
release at once), slots.waited (requests that found no slot), slots.served, slots.one_by_one (a single slot that was
refilled as soon as it was free), slots.still? (seconds since the last request was taken, none of which saw a step of
it). Of the requests: slots.prompt_size? (tokens computed for a prompt), slots.prompt_rate?, slots.decode_rate? (tokens
a second), all medians. slots.discarded? (how often a cached prompt was thrown away), slots.cached_share? (of prompts).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries.load import fact
from infradoc_rules.values import number

_OFFSET = lazy(r"^(\d+)\.(\d\d)\.\d{3}\.\d{3} [IWED] ")
_SLOTTED = ("llamacpp", "ollama")
_LEAST_REQUESTS = 4
_WORK = frozenset({"slot_released", "request_finished", "step_line", "stats_line", "engine_ready", "context_shifted"})


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """The facts above."""
    yield from _discarded(events)
    yield from _cached(events, system)
    yield from _requests(events, system)
    still = _still(events)
    if still is not None:
        yield Fact("slots.still", still, "derived")
    rows = [event for event in events if event.name in ("slot_started", "slot_released", "slot_unavailable")]
    if not any(event.name == "slot_started" for event in rows):
        return
    busy: set[object] = set()
    most, refilled, after_release, served = 0, 0, False, 0
    peak: Event | None = None
    for event in rows:
        slot = event.fields.get("slot")
        if event.name == "slot_released":
            busy.discard(slot)
            after_release, served = True, served + 1
        elif event.name == "slot_started":
            refilled += after_release and len(busy) + 1 >= most
            busy.add(slot)
            if len(busy) > most:
                most, refilled, peak = len(busy), 0, event
            after_release = False
    waited = sum(event.repeat for event in rows if event.name == "slot_unavailable")
    place = peak.source if peak else None
    count = fact(facts, "max_num_seqs") or _seen(events)
    if count:
        yield Fact("slots.count", count, "derived")
    yield Fact("slots.most_busy", most, "derived", place)
    yield Fact("slots.refilled", int(refilled), "derived", place)
    yield Fact("slots.waited", waited, "derived", place)
    yield Fact("slots.served", served, "derived", place)
    yield Fact("slots.full", bool(count) and most >= (count or 0), "derived", place)


def _discarded(events: Sequence[Event]) -> Iterator[Fact]:
    rows = [event for event in events if event.name == "prefix_discarded"]
    if rows:
        yield Fact("slots.discarded", sum(event.repeat for event in rows), "derived", rows[0].source)


def _requests(events: Sequence[Event], system: str | None) -> Iterator[Fact]:
    """Sizes and rates of prompts and answers, as llama.cpp prints them for each request."""
    if system not in _SLOTTED:
        return
    done = [event for event in events if event.name == "request_finished"]
    prompts = [event for event in done if event.fields.get("phase") == "prompt"]
    answers = [event for event in done if event.fields.get("phase") == "eval"]
    for name, rows, field in (
        ("prompt_size", prompts, "prompt_tokens"),
        ("prompt_rate", prompts, "rate"),
        ("decode_rate", answers, "rate"),
    ):
        values = [value for event in rows if (value := number(event.fields.get(field)))]
        if len(values) >= _LEAST_REQUESTS:
            yield Fact(f"slots.{name}", median(values), "derived", rows[-1].source)


def _cached(events: Sequence[Event], system: str | None) -> Iterator[Fact]:
    """What slots had of the prompts that they took, as they say it for each."""
    rows = [event for event in events if event.name == "step_line" and "cached_tokens" in event.fields]
    if system not in _SLOTTED or len(rows) < _LEAST_REQUESTS:
        return
    sizes = [[number(event.fields.get(f"{part}_tokens")) or 0.0 for part in ("cached", "prefill")] for event in rows]
    total = sum(map(sum, sizes))
    if total > 0:
        yield Fact("slots.cached_share", sum(old for old, _ in sizes) / total, "derived", rows[-1].source)
        yield Fact("slots.taken_size", median(new for _, new in sizes), "derived", rows[-1].source)


def _still(events: Sequence[Event]) -> float | None:
    """Seconds from the last request that was taken to the last line, where no line between is of its work."""
    started = next((event for event in reversed(events) if event.name == "slot_started"), None)
    begun = _seconds(started) if started is not None else None
    if started is None or begun is None:
        return None
    after = [event for event in events if event.order > started.order and _file(event) == _file(started)]
    if any(event.name in _WORK for event in after):
        return None
    times = [when for event in after if (when := _seconds(event)) is not None]
    return max(times) - begun if times else None


def _seconds(event: Event) -> float | None:
    """The event's time, else the time since the start that llama.cpp prints before a line (minutes.seconds.ms.us)."""
    if event.time is not None:
        return event.time
    found = _OFFSET.match(event.text or "")
    return 60.0 * int(found[1]) + int(found[2]) if found is not None else None


def _file(event: Event) -> str:
    return (event.source or "").rpartition(":")[0]


def _seen(events: Sequence[Event]) -> float | None:
    """Slots as they were set up, where the log does not say how many."""
    named = {event.fields.get("slot") for event in events if event.name == "slot_created"}
    named.discard(None)
    return float(len(named)) if named else None
