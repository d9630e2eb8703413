"""What two looks at a page of metrics say on progress, as facts:

serving.still?        seconds between the first and the last scrape, in which requests ran and no counter of work moved
serving.still_pages?  pages of one scrape each, between which more requests came to wait and no counter of work moved
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries.load import fact
from infradoc_rules.values import number

_LEAST = 60.0  # seconds; one step over long prompts may take most of it on a CPU
_LATE = 300.0  # where tokens are counted only when a request is finished
_CAME = 4.0  # requests that began to wait meanwhile
_COUNT_LATE = ("sglang", "tgi")
_WORK = (
    "llm_generation_tokens_total",
    "llm_prompt_tokens_total",
    "llm_prompt_computed_tokens_total",
    "llm_steps_total",
    "llm_requests_finished_total",
    "llm_inter_token_latency_seconds_count",
)


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """The facts, when nothing moved for long enough."""
    yield from _pages([event for event in events if event.name == "metrics_page"])
    seconds = fact(facts, "metrics.seconds")
    running = [fact(facts, f"metrics.llm_requests_running{end}") for end in (".first", "")]
    if seconds is None or seconds < (_LATE if system in _COUNT_LATE else _LEAST) or not all(running):
        return
    pairs = [(fact(facts, f"metrics.{name}.first"), fact(facts, f"metrics.{name}")) for name in _WORK]
    known = [(first, last) for first, last in pairs if first is not None and last is not None]
    if known and all(first == last for first, last in known):
        yield Fact("serving.still", seconds, "derived", facts["metrics.llm_requests_running"].source)


def _pages(pages: Sequence[Event]) -> Iterable[Fact]:
    """Pages without times are looks at unlike moments only if they differ: here in who waits."""
    looks = [[number(page.fields.get(name)) for name in ("generated", "prompted", "finished")] for page in pages]
    if len({page.source for page in pages}) < 2 or any(look != looks[0] for look in looks):
        return
    if sum(value is not None for value in looks[0]) < 2 or not all(number(page.fields["running"]) for page in pages):
        return
    waiting = [number(page.fields.get("waiting")) or 0.0 for page in pages]
    if max(waiting) - min(waiting) >= _CAME:
        yield Fact("serving.still_pages", len(pages), "derived", pages[-1].source)
