"""More load than capacity: less load, more copies, or an early refusal."""

from __future__ import annotations

import math

from infradoc_rules.advise.base import Advice
from infradoc_rules.model import Action

_WAIT_LIMIT_SECONDS = 30.0  # a queue beyond this is longer than most callers wait


def _capacity(advice: Advice) -> float | None:
    """Requests a second that finish."""
    rate = advice.read("sum(rate(llm_requests_finished_total[$seen]))")
    return rate or None


def _offered(advice: Advice) -> float | None:
    """Requests a second that arrive: those that finish plus what the queue and the batch grow by."""
    capacity = advice.read("sum(rate(llm_requests_finished_total[$seen]))")
    growth = advice.read("sum(delta(llm_requests_waiting[$long]) + delta(llm_requests_running[$long])) / $long")
    if capacity is None or growth is None:
        return None
    return max(capacity + max(growth, 0.0), 0.0) or None


def lower_request_rate(advice: Advice) -> Action:
    """Send no more than what finishes."""
    capacity, offered = _capacity(advice), _offered(advice)
    return advice.action(
        "lower_request_rate",
        from_value=round(offered, 2) if offered else None,
        to_value=round(capacity, 2) if capacity else None,
        why=advice.say(
            f"{capacity:.2f} requests a second finish" if capacity else "more requests arrive than finish",
            f"每秒完成 {capacity:.2f} 个请求" if capacity else "到达的请求多于完成的请求",
        ),
        cost=advice.say("the callers that are held back are the losers", "受损的是被限速的调用方"),
    )


def add_replicas(advice: Advice) -> Action:
    """As many copies as the offered load needs."""
    capacity, offered = _capacity(advice), _offered(advice)
    copies = max(2, math.ceil(offered / capacity)) if capacity and offered else _by_queue(advice)
    return advice.action(
        "add_replicas",
        from_value=1,
        to_value=copies,
        why=advice.say(
            "the load needs more compute than one copy has"
            + (f": {offered:.2f} requests a second arrive, {capacity:.2f} finish" if capacity and offered else ""),
            "负载超过单个副本的算力"
            + (f"：每秒到达 {offered:.2f} 个请求，完成 {capacity:.2f} 个" if capacity and offered else ""),
        ),
        cost=advice.say(
            "the hardware of each copy; prefix caches are split: their hit rate is the loser unless routing is sticky",
            "每个副本都要硬件；前缀缓存被分散，若不做粘性路由则命中率受损",
        ),
    )


def _by_queue(advice: Advice) -> int | None:
    """As many as would run what runs and waits, by the medians of a log; at most four times the present at once."""
    running, waiting = advice.number("serving.running_median"), advice.number("serving.waiting_median")
    return min(max(2, math.ceil((running + waiting) / running)), 4) if running and waiting else None


def limit_queue(advice: Advice) -> Action:
    """Let no more wait than can be served within 30 s."""
    capacity = _capacity(advice)
    target = max(1, math.floor(capacity * _WAIT_LIMIT_SECONDS)) if capacity else None
    return advice.action(
        "limit_queue",
        to_value=target,
        why=advice.say(
            "a request that would wait for minutes is refused at once, and its caller can go elsewhere",
            "要等几分钟的请求立即被拒绝，调用方可转向他处",
        ),
        cost=advice.say(
            "the refused callers are the losers (HTTP 429 or 503)", "受损的是被拒绝的调用方（HTTP 429 或 503）"
        ),
    )
