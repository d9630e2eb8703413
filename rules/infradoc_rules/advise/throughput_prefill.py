"""Prompts that hold up what runs beside them, and prefixes that are computed again, as a log shows them."""

from __future__ import annotations

from infradoc_rules.advise.base import Advice
from infradoc_rules.advise.device import Present
from infradoc_rules.advise.device import present as present_of
from infradoc_rules.model import Action

_LLAMA_BATCH = 2048  # llama.cpp's default of n_batch


def admit_partial_prefills(advice: Advice) -> Action | None:
    """Several prompts part-way through prefill (vLLM V0). None elsewhere, or where the step is not split."""
    present = advice.number("max_num_partial_prefills") or 1
    if advice.system != "vllm" or present > 1 or not advice.number("serving.prefill_stalls"):
        return None
    return advice.action(
        "raise_max_partial_prefills",
        from_value=int(present),
        to_value=4,
        why=advice.say(
            "one huge prompt takes every step's budget; others may then be computed beside it",
            "一个超长提示占满每步预算；放开后其他提示可与其并行计算",
        ),
        cost=advice.say(
            "the long prompt takes longer: its time to first token is the loser", "长提示变慢：受损的是其首 token 时间"
        ),
    )


def limit_long_prefills(advice: Advice) -> Action | None:
    """Prompts over a twenty-fifth of the longest length count as long. None elsewhere."""
    longest = advice.number("max_model_len")
    if advice.system != "vllm" or advice.fact("long_prefill_token_threshold") or not longest:
        return None
    if not advice.number("serving.prefill_stalls"):
        return None
    return advice.action(
        "set_long_prefill_threshold",
        to_value=int(longest * 0.04),
        why=advice.say("long prompts then leave part of each step to short ones", "长提示便会给短提示留出每步的一部分"),
        cost=advice.say("long prompts are the loser: they take more steps", "受损的是长提示：要分更多步"),
    )


def cut_prefill_chunk(advice: Advice) -> Action | None:
    """A chunk that takes about a second at the speed seen, at least half the present one. None where it is small."""
    seen = advice.number("serving.chunk")
    known = present_of(advice, "max_num_batched_tokens") if seen is None else Present(seen)
    present = advice.number("max_num_batched_tokens") or known.value
    if present is None or present <= 1_024:
        return None
    gap = advice.number("gaps.longest")
    target = int(max(present / max(gap, 2.0), 512)) if gap else int(present) // 2
    if advice.system == "llamacpp":
        target = max(min(target, _LLAMA_BATCH), 512)
    target = max(target // 256 * 256, 512)
    return advice.action(
        "lower_max_num_batched_tokens",
        from_value=int(present),
        to_value=target,
        why=advice.say(
            "running requests wait for one chunk at a time, and a smaller one is over sooner",
            "运行中的请求每次要等一块，块越小越快结束",
        )
        + known.note,
        cost=advice.say(
            "long prompts take more steps: their time to first token is the loser",
            "长提示要分更多步：受损的是其首 token 时间",
        ),
    )


def order_shared_prefix(advice: Advice) -> Action | None:
    """What prompts share stands first in them. None where the cache is off: that comes first."""
    if advice.fact("prefix_caching") is False:
        return None
    return advice.action(
        "extend_shared_prefix",
        why=advice.say(
            "only a beginning that is the same to the token is reused: time stamps and names belong behind it",
            "只有逐 token 相同的开头才会被复用：时间戳和姓名应放在其后",
        ),
        cost=advice.say("prompt templates change: whoever keeps them is the loser", "需要改提示模板：受损的是其维护者"),
    )
