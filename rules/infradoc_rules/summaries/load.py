"""The state of the scheduler over a log or a page of metrics: one sample for each statistics line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from infradoc_rules.model import Event, Fact
from infradoc_rules.values import number


@dataclass(frozen=True, slots=True)
class Sample:
    """One statistics line; None for what it does not say. Rates in tokens a second, `kv` a ratio."""

    event: Event
    running: float
    waiting: float | None
    kv: float | None
    prompt: float | None
    generated: float | None

    @property
    def busy(self) -> bool:
        """Whether there was anything to do."""
        return self.running > 0 or (self.waiting or 0) > 0


def samples(events: Sequence[Event], facts: Mapping[str, Fact]) -> list[Sample]:
    """The statistics lines in order; where there are none, engine steps; else the newest page of metrics."""
    found = [made for event in events if event.name == "stats_line" and (made := _sample(event)) is not None]
    if not found:
        found = [made for event in events if event.name == "step_line" and (made := _sample(event)) is not None]
    page = _page(facts)
    return found or ([page] if page is not None else [])


def _sample(event: Event) -> Sample | None:
    running = number(event.fields.get("running"))
    if running is None:
        running = number(event.fields.get("decode_requests"))
    if running is None:
        return None
    get = event.fields.get
    waiting, active, usage = number(get("waiting")), number(get("active")), number(get("kv_usage"))
    if waiting is None and active is not None:
        waiting = max(active - running, 0.0)
    used, blocks = number(get("blocks_used")), number(get("blocks_total"))
    if usage is None and used is not None and blocks:
        usage = used / blocks
    return Sample(
        event,
        running,
        waiting,
        usage,
        number(get("prompt_rate")),
        number(get("generation_rate")),
    )


def _page(facts: Mapping[str, Fact]) -> Sample | None:
    running = fact(facts, "metrics.llm_requests_running")
    if running is None:
        return None
    place = facts["metrics.llm_requests_running"].source
    event = Event("stats_line", 0, {}, source=place)
    return Sample(
        event,
        running,
        fact(facts, "metrics.llm_requests_waiting"),
        fact(facts, "metrics.llm_kv_cache_usage_ratio"),
        rate(facts, "metrics.llm_prompt_tokens_total"),
        rate(facts, "metrics.llm_generation_tokens_total"),
    )


def rate(facts: Mapping[str, Fact], name: str) -> float | None:
    """A counter's rate between the first and the last scrape; None with one scrape."""
    first, last, seconds = fact(facts, f"{name}.first"), fact(facts, name), fact(facts, "metrics.seconds")
    if first is None or last is None or not seconds or last < first:
        return None
    return (last - first) / seconds


def fact(facts: Mapping[str, Fact], name: str) -> float | None:
    """A fact as a number; None when it is not known or is none."""
    return number(facts[name].value) if name in facts else None


def middle(values: Sequence[float | None]) -> float | None:
    """The median of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return median(known) if known else None
