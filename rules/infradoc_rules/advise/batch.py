"""A batch limit that is too small."""

from __future__ import annotations

import math

from infradoc_rules.advise.base import Advice
from infradoc_rules.advise.lengths import pool_tokens, request_tokens
from infradoc_rules.model import Action

_POOL_SHARE = 0.85  # of the pool that the larger batch may fill at P99 lengths: above it, preemption starts
_LARGEST_STEP = 4  # times the present limit in one change, so that its effect can be judged


def raise_max_num_seqs(advice: Advice) -> Action | None:
    """As many slots as requests are there, bounded by what the pool holds at P99 lengths. None when none fit."""
    present = advice.number("max_num_seqs") or advice.read("max(max_over_time(llm_requests_running[$long]))")
    asked = advice.read(
        "sum(max_over_time(llm_requests_running[$long])) + sum(max_over_time(llm_requests_waiting[$long]))"
    )
    if not present:
        return None
    wanted = min(asked or 2 * present, _LARGEST_STEP * present)
    pool, length = pool_tokens(advice), request_tokens(advice)
    if pool and length:
        wanted = min(wanted, math.floor(pool * _POOL_SHARE / length))
    target = int(wanted)
    if target <= present:
        return None
    return advice.action(
        "raise_max_num_seqs",
        from_value=int(present),
        to_value=target,
        flag=_flag(advice, int(present), target),
        why=advice.say(
            f"requests wait while KV blocks are free; {target} of them fit at their P99 length",
            f"KV 块空闲而请求在等待；按 P99 长度可容纳 {target} 个",
        ),
        cost=advice.say(
            "each step takes longer with more requests in it: the gap between tokens of a running request is the loser",
            "每步请求更多、耗时更长：受损的是运行中请求的 token 间隔",
        ),
    )


def _flag(advice: Advice, present: int, target: int) -> str | None:
    """llama.cpp divides its context across the slots: it has to grow with them, or each request gets less."""
    per_slot = advice.number("max_model_len")
    if advice.system != "llamacpp" or not per_slot:
        return None
    return f"--parallel {target} --ctx-size {int(per_slot) * target}"
