"""Settings that an engine prints the other way round than the canonical knob names them.

Facts: prefix_caching, fast_image_processor, async_scheduling, custom_all_reduce (SGLang).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from infradoc_rules.model import Event, Fact
from infradoc_rules.values import number

_OPPOSITE = {
    "sglang.disable_radix_cache": "prefix_caching",
    "sglang.disable_fast_image_processor": "fast_image_processor",
    "sglang.disable_overlap_schedule": "async_scheduling",
    "sglang.disable_custom_all_reduce": "custom_all_reduce",
}


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """The canonical fact for each printed opposite, and for what an engine says in words."""
    said = facts.get("graphs.off_said")
    if said is not None and "enforce_eager" not in facts:
        yield Fact("enforce_eager", True, "log", said.source)
    sizes = facts.get("cuda_graph_max_bs")
    if said is None and sizes is not None and number(sizes.value) == 0 and "enforce_eager" not in facts:
        yield Fact("enforce_eager", True, "derived", sizes.source)
    for printed, knob in _OPPOSITE.items():
        fact = facts.get(printed)
        if fact is not None and isinstance(fact.value, bool):
            yield Fact(knob, not fact.value, "log", fact.source)
