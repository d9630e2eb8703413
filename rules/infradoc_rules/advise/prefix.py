"""Shared prefixes that are computed again."""

from __future__ import annotations

from infradoc_rules.advise.base import Advice
from infradoc_rules.advise.kv import raise_kv_capacity
from infradoc_rules.advise.lengths import block_size
from infradoc_rules.model import Action

_CROWDED = 0.8  # of the pool in use: what is cached has to go when a request grows


def enable_prefix_caching(advice: Advice) -> Action | None:
    """Switch the cache on. None where it is on, or that is not known."""
    if advice.fact("prefix_caching") is not False:
        return None
    return advice.action(
        "enable_prefix_caching",
        from_value=False,
        to_value=True,
        why=advice.say(
            "a prefix that was computed once is then read from the KV cache; prompts that share none lose nothing",
            "算过一次的前缀可直接从 KV 缓存读取；没有共享前缀的提示也不受损",
        ),
        cost=advice.say(
            "hashing of blocks, below 1 % of a step; tenants then share blocks, whose timing tells a "
            "guesser what others sent: strict isolation is the loser",
            "块哈希不足单步的 1 %；不同租户会共享块，从时延可猜到他人内容：受损的是严格隔离",
        ),
    )


def hold_prefixes(advice: Advice) -> Action | None:
    """A larger pool, where running requests crowd the cached blocks out. None where blocks are free."""
    usage = advice.read("max(max_over_time(llm_kv_cache_usage_ratio[$long]))")
    return raise_kv_capacity(advice) if usage is not None and usage > _CROWDED else None


def extend_shared_prefix(advice: Advice) -> Action | None:
    """What prompts share goes first and fills whole blocks. None where the cache is off: that comes before."""
    if advice.fact("prefix_caching") is False:
        return None
    size = block_size(advice)
    return advice.action(
        "extend_shared_prefix",
        to_value=size,
        why=advice.say(
            f"only whole blocks of {size} tokens from the very first token on are reused: a time, a name or an id at "
            "the front makes each prompt new",
            f"只有从第一个 token 起的整块（{size} 个 token）能复用：开头放时间、姓名或编号会让每条提示都是新的",
        ),
        cost=advice.say(
            "clients are the losers: their prompt templates have to be put in another order",
            "受损的是客户端：需要调整提示模板的顺序",
        ),
    )


def keep_prefix_states(advice: Advice) -> Action | None:
    """Checkpoints, or a whole cache for sliding windows (llama.cpp). None where no slot threw a prompt away."""
    if not advice.fact("slots.discarded"):
        return None
    return advice.action(
        "keep_prefix_states",
        flag="--ctx-checkpoints 64",
        why=advice.say(
            "recurrent layers and sliding windows cannot be rolled back to where two prompts part; a slot goes on only "
            "from a state that was kept: more checkpoints (--ctx-checkpoints), for sliding windows --swa-full",
            "循环层和滑动窗口无法回退到两个提示分叉之处；槽位只能从保留的状态继续：增加检查点（--ctx-checkpoints），"
            "滑动窗口模型用 --swa-full",
        ),
        cost=advice.say(
            "each state takes host memory, a whole window cache device memory: longer contexts are the loser",
            "每个状态占用主机内存，完整窗口缓存占用显存：受损的是更长的上下文",
        ),
    )
