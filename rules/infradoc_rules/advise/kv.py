"""KV pressure: a larger pool where memory is free, else a smaller batch."""

from __future__ import annotations

import math

from infradoc_rules.advise.base import Advice, round_up
from infradoc_rules.advise.device import present as present_of
from infradoc_rules.advise.device import present_share
from infradoc_rules.advise.lengths import block_size, concurrency, pool_tokens, request_tokens
from infradoc_rules.model import Action
from infradoc_rules.units import GIB, size_text

_MEMORY_SHARE = 0.8  # of what is free: the host and the activation peak need the rest
_LARGEST_SHARE = 0.95  # of device memory; above it the CUDA context and fragmentation have no room
_FULL = 0.9  # of the pool by a log's statistics
_SMALLEST_GROWTH = 1.1  # less is not worth a change


def raise_kv_capacity(advice: Advice) -> Action | None:
    """Grow the pool to requests x P99 length, as far as free memory goes. None when there is no room."""
    pool = pool_tokens(advice)
    wanted = _wanted_tokens(advice, pool)
    if pool is None or wanted is None:
        return _unsized(advice, pool)
    room = _tokens_of_free_memory(advice)
    target = wanted if room is None else min(wanted, pool + room)
    size = block_size(advice)
    target = round_up(target, size) if room is None or wanted <= pool + room else target // size * size
    if advice.system == "lmdeploy":
        target = min(target, _largest_pool(advice, pool))
    if target < pool * _SMALLEST_GROWTH:
        return None
    return advice.action(
        "raise_kv_capacity",
        from_value=pool,
        to_value=target,
        flag=_pool_flag(advice, pool, target),
        why=advice.say(
            f"{target:,} tokens hold the requests in flight at their P99 length; the pool has {pool:,}",
            f"{target:,} 个 token 能按 P99 长度容纳所有在途请求；当前池只有 {pool:,}",
        )
        + _in_blocks(advice, pool, target),
        cost=_memory_cost(advice, target - pool),
    )


def _wanted_tokens(advice: Advice, pool: int | None) -> int | None:
    length, requests = request_tokens(advice), concurrency(advice)
    if pool is None or length is None or requests is None:
        return None
    wanted: float = length * requests  # every request at its P99 at once, in whole blocks: no headroom on top
    limit, seqs = advice.number("max_model_len"), advice.number("max_num_seqs")
    if limit and seqs:
        wanted = min(wanted, limit * seqs)
    return round_up(max(wanted, pool * _SMALLEST_GROWTH), block_size(advice))


def _tokens_of_free_memory(advice: Advice) -> int | None:
    free, per_token = advice.hint("free_memory_bytes"), _bytes_per_token(advice)
    if free is not None and per_token:
        return int(free * _MEMORY_SHARE / per_token)
    fitting, present = advice.number("kv.pool_blocks_fitting"), advice.number("kv.pool_blocks_override")
    if fitting is None or present is None:
        return None
    return int((fitting - present) * block_size(advice))  # vLLM measured it at start, before the override


def _bytes_per_token(advice: Advice) -> float | None:
    """What the engine says, or on vLLM with an override: the bytes that it planned over the blocks that they hold."""
    hint = advice.hint("kv_bytes_per_token")
    planned, blocks = advice.number("kv.memory_bytes"), advice.number("kv.pool_blocks_fitting")
    return hint or (planned / (blocks * block_size(advice)) if planned and blocks else None)


def _memory_cost(advice: Advice, tokens: int) -> str:
    per_token = _bytes_per_token(advice)
    size = size_text(tokens * per_token) if per_token else None
    loser = advice.say(
        "the loser is whatever else would use that memory (longer prompts' activations, other processes)",
        "代价由其他要用这部分内存的地方承担（长提示的激活、其他进程）",
    )
    if size is None:
        unknown = advice.say(
            "memory for the blocks; check first that it is free", "需要为这些块腾出内存；请先确认有空闲"
        )
        return f"{unknown}; {loser}"
    return advice.say(f"{size} more memory", f"多占 {size} 内存") + f"; {loser}"


def _largest_pool(advice: Advice, pool: int) -> int:
    """LMDeploy: tokens at the largest share of what is free beside the weights."""
    size = block_size(advice)
    return int(pool * _LARGEST_SHARE / (present_share(advice) or _LARGEST_SHARE)) // size * size


def _in_blocks(advice: Advice, pool: int, target: int) -> str:
    """What LMDeploy counts: blocks."""
    if advice.system != "lmdeploy":
        return ""
    size = block_size(advice)
    return advice.say(
        f"; in blocks of {size}: {pool // size:,} -> {target // size:,}",
        f"；按每块 {size} 个 token 计：{pool // size:,} -> {target // size:,}",
    )


def _pool_flag(advice: Advice, pool: int, tokens: int) -> str | None:
    """vLLM sizes the pool in blocks (override), in bytes, or on CPU by an environment variable in GiB; LMDeploy by the
    share of what is free, to which the pool is in proportion; llama.cpp's pool is the context of all slots."""
    share = present_share(advice)
    if advice.system == "lmdeploy" and share is not None and share <= 1:
        return f"--cache-max-entry-count {min(share * tokens / pool, _LARGEST_SHARE):.2f}"
    if advice.system == "llamacpp":
        return f"--ctx-size {tokens}"
    if advice.system != "vllm":
        return None
    space = advice.fact("VLLM_CPU_KVCACHE_SPACE") or advice.fact("env.VLLM_CPU_KVCACHE_SPACE")
    overridden = advice.fact("kv.pool_blocks_override") is not None
    per_token = advice.hint("kv_bytes_per_token")
    if not overridden and per_token:
        needed = tokens * per_token
        return (
            f"VLLM_CPU_KVCACHE_SPACE={math.ceil(needed / GIB)}" if space else f"--kv-cache-memory-bytes {int(needed)}"
        )
    return f"--num-gpu-blocks-override {math.ceil(tokens / block_size(advice))}"


def _unsized(advice: Advice, pool: int | None) -> Action | None:
    if advice.system == "vllm" and raise_gpu_memory_utilization(advice) is not None:
        return None  # a share with a number grows the pool as well
    return advice.action(
        "raise_kv_capacity",
        from_value=pool,
        why=advice.say(
            "the pool is smaller than what the running requests need; by how much cannot be read from this target",
            "KV 池小于运行中请求的需要；差多少无法从该目标读出",
        ),
        cost=_memory_cost(advice, 0)
        if pool is None
        else advice.say(
            "memory for the blocks: whatever else would use it is the loser",
            "需要内存存放更多块：受损的是其他要用这部分内存的地方",
        ),
    )


def lower_max_num_seqs(advice: Advice) -> Action | None:
    """Admit only as many requests as the pool holds at their P99 length. None when that is no reduction."""
    pool, length = pool_tokens(advice), request_tokens(advice)
    present = advice.number("max_num_seqs")
    peak = advice.read("max(max_over_time(llm_requests_running[$long]))")
    bound = min(value for value in (present, peak, math.inf) if value is not None)
    if bound <= 1:
        return None
    target = None
    if pool and length:
        target = max(1, min(pool // length, int(bound) - 1 if math.isfinite(bound) else pool // length))
    return advice.action(
        "lower_max_num_seqs",
        from_value=int(present) if present else None,
        to_value=target,
        why=advice.say(
            "fewer requests at once keep their blocks to the end; needs no memory",
            "同时运行的请求更少，就能一直保住自己的块；不需要内存",
        ),
        cost=advice.say(
            "about 10 % throughput, and new requests wait longer: time to first token is the loser (about 40 %)",
            "吞吐约降 10 %，新请求等待更久：受损的是首 token 时间（约 40 %）",
        ),
    )


def raise_gpu_memory_utilization(advice: Advice) -> Action | None:
    """Five points more of the device, where the pool is derived from that share. None near the end, or unknown."""
    known = present_of(advice, "gpu_memory_utilization")
    present = known.value
    derived = advice.fact("kv.pool_blocks_override") is None and advice.fact("kv.pool_bytes_override") is None
    full = (advice.number("serving.kv_max") or 0.0) >= _FULL
    unsaid = present is None and advice.system == "vllm" and full  # 0.9 or 0.92, by the version
    if present is None and not unsaid:
        return None
    if (present or 0.0) >= _LARGEST_SHARE or not derived or advice.system == "infradoc":
        return None
    return advice.action(
        "raise_gpu_memory_utilization",
        from_value=present,
        to_value=_LARGEST_SHARE if present is None else round(min(_LARGEST_SHARE, present + 0.05), 2),
        why=advice.say(
            "the KV pool gets all of the added share: weights and activations stay the same",
            "增加的份额全部归 KV 池：权重和激活不变",
        )
        + known.note,
        cost=advice.say(
            "less room for activation peaks: long prompts are the loser, they may run out of memory",
            "激活峰值的余量变小：长提示受损，可能内存不足",
        ),
    )
