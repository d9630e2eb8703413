"""Limits that are no matter of device memory: a kernel's on-chip shared memory, a length above the model's.

Facts: kernel.refused, kernel.attention, length.beyond_model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries.start import attempts, first_served


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """kernel.refused: a kernel did not fit and nothing was served after; kernel.attention: it computes attention.

    length.beyond_model: requests went beyond what the model was trained for, where the limit was set above that, or the
    server cut the limit down to it.
    """
    if not events:
        return
    run = attempts(events)[-1]
    refused = [event for event in run if event.name == "kernel_resources"]
    # Autotuners try kernels that do not fit and go on with others: then requests are served afterwards.
    lasting = bool(refused) and first_served([event for event in run if event.order > refused[-1].order]) is None
    yield Fact("kernel.refused", lasting, "derived", refused[0].source if refused else None)
    words = " ".join(f"{event.fields.get('functions', '')} {event.fields.get('kernel', '')}" for event in refused)
    yield Fact("kernel.attention", "attention" in words.lower() or "attn" in words.lower(), "derived")
    yield Fact("length.beyond_model", _beyond(run, facts), "derived")


def _beyond(run: Sequence[Event], facts: Mapping[str, Fact]) -> bool:
    above = next((event for event in run if event.name == "length_above_model"), None)
    if any(event.fields.get("capped") is True for event in run if event.name == "length_above_model"):
        return True  # scaled or not: the server does not give what was asked for
    limit = above.fields.get("model_tokens") if above else None
    if not isinstance(limit, int) or "rope_scaling" in facts:
        return False
    if any(event.name == "output_invalid" for event in run):
        return True
    names = {"request_finished": "prompt_tokens", "slot_released": "tokens"}
    lengths = [event.fields.get(names[event.name]) for event in run if event.name in names]
    return any(isinstance(tokens, int) and tokens > limit for tokens in lengths)
