"""What two looks at a page of metrics say on progress, as facts:

serving.still?   seconds between the first and the last scrape, in which requests ran and no counter of work moved
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries.load import fact

_LEAST = 60.0  # seconds; one step over long prompts may take most of it on a CPU
_LATE = 300.0  # where tokens are counted only when a request is finished
_COUNT_LATE = ("sglang", "tgi")
_WORK = (
    "llm_generation_tokens_total",
    "llm_prompt_tokens_total",
    "llm_prompt_computed_tokens_total",
    "llm_steps_total",
    "llm_requests_finished_total",
    "llm_inter_token_latency_seconds_count",
)


def summary(_: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """The fact, when nothing moved for long enough."""
    seconds = fact(facts, "metrics.seconds")
    running = [fact(facts, f"metrics.llm_requests_running{end}") for end in (".first", "")]
    if seconds is None or seconds < (_LATE if system in _COUNT_LATE else _LEAST) or not all(running):
        return
    pairs = [(fact(facts, f"metrics.{name}.first"), fact(facts, f"metrics.{name}")) for name in _WORK]
    known = [(first, last) for first, last in pairs if first is not None and last is not None]
    if known and all(first == last for first, last in known):
        yield Fact("serving.still", seconds, "derived", facts["metrics.llm_requests_running"].source)
