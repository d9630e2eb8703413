"""An idle server: whether one was watched, and which rules can judge one."""

from __future__ import annotations

import re

from infradoc_rules.model import Series, SignalFrame
from infradoc_rules.schema import Rule

# Signals that say nothing of an idle server, or say that all is well with it: requests, their tokens and their latency.
_TRAFFIC = re.compile(
    r"\b(?:llm_(?:requests?_|http_|prompt_|generation_|time_to|inter_token|preemptions|steps_|prefix_cache|recomputed)"
    r"|client_|log_event_total|proc_event_loop_lag)"
)
_IN_HAND = ("llm_requests_running", "llm_requests_waiting")
_COUNTED = ("llm_requests_finished_total", "llm_prompt_tokens_total", "llm_generation_tokens_total")


def needs_traffic(rule: Rule) -> bool:
    """Whether the rule can only judge requests: each of its branches asks for a signal of theirs."""
    if rule.live is None:
        return False
    return all(any(_TRAFFIC.search(item.expr or "") for item in branch.when) for branch in rule.live.branches)


def is_idle(frame: SignalFrame, seconds: float) -> bool:
    """Whether the server shows its requests and had none in the last `seconds`. False where it does not show them."""
    since = frame.now - seconds
    if not frame.select(_IN_HAND[0]):
        return False
    held = any(_largest(series, since) > 0 for name in _IN_HAND for series in frame.select(name))
    return not held and not any(_moved(series, since) for name in _COUNTED for series in frame.select(name))


def _largest(series: Series, since: float) -> float:
    seen = [value for time, value in zip(series.times, series.values, strict=True) if time >= since]
    return max((value for value in seen if value == value), default=0.0)  # a stale mark is a NaN


def _moved(series: Series, since: float) -> bool:
    seen = [value for time, value in zip(series.times, series.values, strict=True) if time >= since and value == value]
    return bool(seen) and max(seen) != min(seen)
