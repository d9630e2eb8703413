"""KV blocks: their size, leaked ones, and blocks that travel to host memory and back."""

from __future__ import annotations

from dataclasses import replace

from infradoc_rules.advise import kv
from infradoc_rules.advise.base import Advice
from infradoc_rules.advise.lengths import block_size, mean_tokens
from infradoc_rules.advise.memory import served_change
from infradoc_rules.model import Action

_WASTE = 0.06  # of a request's tokens that may lie empty in its last block, on average half a block
_SMALLEST = {"infradoc": 8, "sglang": 1, "vllm": 16}  # below it, tables and lookups cost more than the waste
_LARGEST_BLOCK = 256
_SMALLEST_ELSEWHERE = 16


def lower_block_size(advice: Advice) -> Action | None:
    """The largest power of two that wastes no more than 6 % at the mean length. None where it is no smaller."""
    mean, present = mean_tokens(advice), block_size(advice)
    if not mean:
        return None
    target, least = _LARGEST_BLOCK, _SMALLEST.get(advice.system or "", _SMALLEST_ELSEWHERE)
    while target > least and (target - 1) / 2 > _WASTE * mean:
        target //= 2
    if target >= present:
        return None
    waste = (target - 1) / 2 / (mean + (target - 1) / 2)
    action = advice.action(
        "lower_block_size",
        from_value=present,
        to_value=target,
        why=advice.say(
            f"requests have {mean:.0f} tokens on average: blocks of {target} leave {waste:.0%} empty",
            f"请求平均 {mean:.0f} 个 token：块大小取 {target} 时只有 {waste:.0%} 空置",
        ),
        cost=advice.say(
            "the pool is built anew: what runs is computed again once and the prefix cache starts empty; longer block "
            "tables make long contexts the loser",
            "池要重建：运行中的请求重算一次，前缀缓存清空；块表变长，受损的是长上下文",
        ),
    )
    return served_change(advice, action) if action.flag is not None else None


def defragment_kv(advice: Advice) -> Action | None:
    """Give leaked blocks back. None where the engine shows none, or cannot do it."""
    leaked = advice.read('sum(llm_kv_blocks{state="leaked"})')
    if not leaked or advice.system != "infradoc":
        return None
    owner, size = advice.fact("kv.leaked_owner"), block_size(advice)
    whose = advice.say(f"; the oldest belonged to request {owner}", f"；最早的一块属于请求 {owner}") if owner else ""
    action = advice.action(
        "defragment_kv",
        to_value=True,
        flag="POST /admin/defragment",
        why=advice.say(
            f"{leaked:.0f} blocks ({leaked * size:,.0f} tokens) belong to no request and come back at once",
            f"{leaked:.0f} 个块（{leaked * size:,.0f} 个 token）不属于任何请求，可立即收回",
        )
        + whose,
        cost=advice.say(
            "blocks in use are moved once: the step that does it is the loser; the leak itself goes on",
            "使用中的块会移动一次：受损的是执行移动的那一步；泄漏本身仍在继续",
        ),
    )
    return replace(action, live=True)


def _moves_blocks(advice: Advice) -> bool:
    """Whether the engine moves KV to the host, as against a host that swaps its own memory."""
    swapped = advice.read("sum(max_over_time(llm_requests_swapped[$long]))")
    moved = advice.read("sum(increase(llm_kv_transfer_bytes_total[$long]))")
    return bool(swapped or moved)


def raise_kv_capacity_for_swap(advice: Advice) -> Action | None:
    """A pool that holds what now is swapped. None for a host that swaps."""
    return kv.raise_kv_capacity(advice) if _moves_blocks(advice) else None


def lower_max_num_seqs_for_swap(advice: Advice) -> Action | None:
    """Only as many requests as stay on the device. None for a host that swaps."""
    return kv.lower_max_num_seqs(advice) if _moves_blocks(advice) else None


def recompute_instead_of_swap(advice: Advice) -> Action | None:
    """Drop a preempted request's blocks. None where the engine does so already or has no choice."""
    present = advice.fact("preemption_mode")
    if present == "recompute" or not _moves_blocks(advice) or advice.system not in ("infradoc", "vllm"):
        return None
    return advice.action(
        "recompute_instead_of_swap",
        from_value=present,
        to_value="recompute",
        why=advice.say(
            "short contexts are computed again faster than their blocks travel twice",
            "短上下文重新计算比块来回搬运更快",
        ),
        cost=advice.say(
            "compute for tokens that were there: long preempted requests are the loser",
            "要重算已有的 token：受损的是被抢占的长请求",
        ),
    )
