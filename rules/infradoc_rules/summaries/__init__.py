"""What a post-mortem's events say when they are read together, as facts that rules can match.

A summary is a pure function (events, facts, system) -> facts. They run in the order of SUMMARIES; each sees the facts
of those before it, and none replaces a fact that an artefact stated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries import (
    access,
    account,
    clients,
    collectives,
    communication,
    cpu,
    engine_flags,
    hangs,
    hardware,
    host,
    length,
    limits,
    memory,
    memory_growth,
    preemption,
    quality,
    runtime,
    scrapes,
    serving,
    slot,
    slots,
    start,
    train_memory,
    training,
)

Summary = Callable[[Sequence[Event], Mapping[str, Fact], str | None], Iterable[Fact]]

SUMMARIES: tuple[Summary, ...] = (
    engine_flags.summary,
    start.summary,
    memory.summary,
    account.summary,
    host.summary,
    limits.summary,
    communication.summary,
    collectives.summary,
    hangs.summary,
    training.summary,
    train_memory.summary,
    slot.summary,
    quality.summary,
    scrapes.summary,
    serving.summary,
    preemption.summary,
    slots.summary,
    access.summary,
    cpu.summary,
    memory_growth.summary,
    clients.summary,
    runtime.summary,
    length.summary,
    hardware.summary,
)


def summarise(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> dict[str, Fact]:
    """`facts` with everything that the summaries add."""
    known = dict(facts)
    for summary in SUMMARIES:
        for fact in summary(events, known, system):
            known.setdefault(fact.name, fact)
    return known


__all__ = ["SUMMARIES", "Summary", "summarise"]
