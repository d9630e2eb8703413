"""Servers with numbered slots (llama.cpp and what is built on it): how many were ever busy at once.

Facts (where the log tells of slots): slots.count?, slots.most_busy, slots.refilled (starts at the peak that followed a
release at once), slots.waited (requests that found no slot), slots.served, slots.one_by_one (a single slot that was
refilled as soon as it was free).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries.load import fact


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """The facts above."""
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


def _seen(events: Sequence[Event]) -> float | None:
    """Slots as they were set up, where the log does not say how many."""
    named = {event.fields.get("slot") for event in events if event.name == "slot_created"}
    named.discard(None)
    return float(len(named)) if named else None
