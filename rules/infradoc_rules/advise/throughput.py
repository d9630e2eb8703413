"""A batch that stays small, for the server's limit or for what clients send, as a log shows it."""

from __future__ import annotations

import math

from infradoc_rules.advise.base import Advice
from infradoc_rules.model import Action

_POOL_SHARE = 0.85  # of the pool that a larger batch may fill
_LARGEST_STEP = 4  # times the present limit in one change, so that its effect can be judged
_SLOTS = 4


def raise_clients_in_flight(advice: Advice) -> Action | None:
    """More requests in flight, as far as slots and pool go."""
    running = advice.number("serving.running_median") or advice.number("slots.most_busy")
    if not running:
        return None
    limit = advice.number("slots.count") or advice.number("serving.limit") or math.inf
    usage = advice.number("serving.kv_median")
    room = running * _POOL_SHARE / usage if usage else math.inf
    target = int(min(_LARGEST_STEP * running, limit, room))
    return advice.action(
        "raise_client_concurrency",
        from_value=int(running),
        to_value=target if target > running else None,
        why=advice.say(
            "a step over more requests takes little longer: weights are read once; "
            "look for a connection limit (100 in aiohttp, 6 a host in browsers) or a semaphore",
            "一步处理更多请求几乎不更慢：权重只读一遍；请查连接数上限（aiohttp 默认 100，浏览器每主机 6）或信号量",
        ),
        cost=advice.say(
            "each single request gets somewhat slower: whoever measures one answer at a time is the loser",
            "单个请求会略慢：受损的是逐个计时的一方",
        ),
    )


def raise_seqs_for_queue(advice: Advice) -> Action | None:
    """As many at once as the pool holds, up to four times the present limit. None where room is reserved whole."""
    if advice.fact("scheduling_policy") == "GUARANTEED_NO_EVICT" and advice.fact("serving.at_limit") is False:
        return None
    running = advice.number("batch.running")
    present = advice.number("slots.count") or advice.number("max_num_seqs") or running
    if not present or not running:
        return None
    usage, waiting = advice.number("serving.kv_max"), advice.number("serving.waiting_median")
    room = present * _POOL_SHARE / usage if usage else math.inf
    wanted = present + waiting if waiting else max(_SLOTS, 2 * present)
    target = int(min(wanted, _LARGEST_STEP * present, room))
    if target <= present:
        return None
    return advice.action(
        "raise_max_num_seqs",
        from_value=int(present),
        to_value=target,
        flag=_slots_flag(advice, int(present), target),
        why=_why_more(advice, usage, int(present)),
        cost=advice.say(
            "each step takes longer: the gap between tokens of a running request is the loser",
            "每步耗时更长：受损的是运行中请求的 token 间隔",
        ),
    )


def _why_more(advice: Advice, usage: float | None, present: int) -> str:
    if usage:
        return advice.say("requests wait while memory is free for more of them", "内存还能容纳更多请求，而它们在等待")
    if present <= 1:
        return advice.say("requests run one after another", "请求只能逐个运行")
    return advice.say(f"no more than {present} requests run at once", f"同时运行的请求不超过 {present} 个")


def _slots_flag(advice: Advice, present: int, target: int) -> str | None:
    """llama.cpp divides its context across the slots: it has to grow with them, or each request gets less."""
    length = advice.number("max_model_len")
    if advice.system != "llamacpp" or not length:
        return None
    given = advice.frame.facts["max_model_len"].origin == "flag"  # --ctx-size is of all slots; logs tell that of one
    per_slot = length / present if given else length
    return f"--parallel {target} --ctx-size {round(per_slot * target)}"


def enable_continuous_batching(advice: Advice) -> Action | None:
    """Requests join a running batch (llama.cpp before it was the default). None elsewhere, or where it is on."""
    if advice.system != "llamacpp" or advice.fact("continuous_batching") is True:
        return None
    return advice.action(
        "enable_continuous_batching",
        why=advice.say("a new request then joins the batch that runs", "新请求可加入正在运行的批"),
        cost=advice.say("single requests are somewhat slower: they are the loser", "单个请求略慢：受损的是它们"),
    )
