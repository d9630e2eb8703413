"""A batch that is too small: for the server's limit, or for what clients send."""

from __future__ import annotations

import math

from infradoc_rules.advise.base import Advice
from infradoc_rules.advise.lengths import divided_context, measured_tokens, pool_tokens
from infradoc_rules.model import Action

_POOL_SHARE = 0.85  # of the pool that the larger batch may fill: above it, preemption starts
_LARGEST_STEP = 4  # times the present limit in one change, so that its effect can be judged


def raise_max_num_seqs(advice: Advice) -> Action | None:
    """As many slots as requests are there, bounded by what the pool holds. None when no more fit."""
    running, waiting = _seen(advice)
    present = advice.number("max_num_seqs") or running
    if not present:
        return None
    asked = running + waiting if running is not None and waiting is not None else 2 * present
    room = _room(advice, present)
    target = int(min(asked, _LARGEST_STEP * present, room))
    if target <= present:
        return None
    held = advice.say(f"; the pool holds {room:.0f} of them", f"；池可容纳 {room:.0f} 个") if room < math.inf else ""
    return advice.action(
        "raise_max_num_seqs",
        from_value=int(present),
        to_value=target,
        flag=_flag(advice, target),
        why=advice.say(
            f"requests wait while {'blocks are free' if held else 'all slots are taken'}",
            f"{'KV 块空闲' if held else '槽位已满'}而请求在等待",
        )
        + held
        + divided_context(advice),
        cost=advice.say(
            "each step takes longer with more requests in it: the gap between tokens of a running request is the loser",
            "每步请求更多、耗时更长：受损的是运行中请求的 token 间隔",
        ),
    )


def raise_client_concurrency(advice: Advice) -> Action | None:
    """Four times what clients keep in flight, as far as slots and pool go. None where that is no more."""
    running = advice.read("sum(max_over_time(llm_requests_running[$long]))")
    if not running:
        return None
    limit = advice.number("max_num_seqs") or math.inf
    target = int(min(_LARGEST_STEP * running, limit, _room(advice, running)))
    if target <= running:
        return None
    return advice.action(
        "raise_client_concurrency",
        from_value=int(running),
        to_value=target,
        why=advice.say(
            f"a step over {target} requests takes little longer than one over {int(running)}: weights are read once",
            f"一步处理 {target} 个请求几乎不比 {int(running)} 个更慢：权重只读一遍",
        ),
        cost=advice.say(
            "each single request gets somewhat slower: whoever measures one answer at a time is the loser",
            "单个请求会略慢：受损的是逐个计时的一方",
        ),
    )


def _seen(advice: Advice) -> tuple[float | None, float | None]:
    """(running, waiting) at their peak of the last windows, or in the last statistics line of a log."""
    running = advice.read("sum(max_over_time(llm_requests_running[$long]))")
    waiting = advice.read("sum(max_over_time(llm_requests_waiting[$long]))")
    return (
        running if running is not None else advice.last("stats_line", "running"),
        waiting if waiting is not None else advice.last("stats_line", "waiting"),
    )


def _room(advice: Advice, present: float) -> float:
    """Requests that the pool holds: at their P99 length, or scaled from its present use; infinite when unknown."""
    pool, length = pool_tokens(advice), measured_tokens(advice)
    if pool and length:
        return math.floor(pool * _POOL_SHARE / length)
    usage = advice.read("max(max_over_time(llm_kv_cache_usage_ratio[$long]))") or advice.last("stats_line", "kv_usage")
    return math.floor(present * _POOL_SHARE / usage) if usage else math.inf


def _flag(advice: Advice, target: int) -> str | None:
    """llama.cpp divides its context across the slots: it has to grow with them, or each request gets less."""
    per_slot = advice.number("max_model_len")
    if advice.system != "llamacpp" or not per_slot:
        return None
    return f"--parallel {target} --ctx-size {int(per_slot) * target}"
