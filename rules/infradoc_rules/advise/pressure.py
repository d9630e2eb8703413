"""A pool that is too full and memory that grows, as a log of a served model shows them."""

from __future__ import annotations

import math

from infradoc_rules.advise.base import Advice
from infradoc_rules.advise.device import default, older_than
from infradoc_rules.model import Action
from infradoc_rules.units import size_text


def lower_seqs_to_pool(advice: Advice) -> Action | None:
    """As many requests at once as the pool held without taking blocks away. None where a handful fills it."""
    if advice.fact("serving.pool_bound") is True:
        return None
    present = advice.number("max_num_seqs") or advice.number("serving.limit") or default(advice, "max_num_seqs")
    running, usage = advice.number("serving.running_median"), advice.number("serving.kv_median")
    target = None
    if running:
        share = 0.9 if not usage or usage >= 0.9 else 0.9 / max(usage, 0.5)
        target = max(1, math.floor(running * min(share, 0.9)))
    if present is not None and target is not None and target >= present:
        target = max(1, int(present) - 1)
    if target is None and present is not None and present > 1:
        target = int(present) // 2 if present < 8 else int(present * 0.75)
    if target is None and present is None and advice.system is None:
        return None
    return advice.action(
        "lower_max_num_seqs",
        from_value=int(present) if present else None,
        to_value=target,
        why=advice.say(
            f"about {target} requests keep their blocks to the end" if running else "fewer requests keep their blocks",
            f"约 {target} 个请求能一直保住自己的块" if running else "减少同时运行的请求，它们才能保住自己的块",
        ),
        cost=advice.say(
            "new requests wait longer: time to first token is the loser", "新请求等待更久：受损的是首 token 时间"
        ),
    )


def raise_watermark(advice: Advice) -> Action | None:
    """A reserve of free blocks at admission. None for engines without the knob."""
    present = advice.number("watermark") or 0.0
    known = advice.running.has("--watermark")
    if present >= 0.05 or advice.system != "vllm" or known is False or _is_v0(advice):
        return None
    since = "" if known else advice.say("; vLLM has it from 0.24 on", "；vLLM 0.24 起才有")
    return advice.action(
        "raise_watermark",
        from_value=present,
        to_value=0.05,
        why=advice.say("running requests then have blocks to grow into", "运行中的请求便有块可供增长") + since,
        cost=advice.say(
            "a twentieth of the pool stays empty: concurrency is the loser", "池的二十分之一留空：受损的是并发"
        ),
    )


def _is_v0(advice: Advice) -> bool:
    """Whether vLLM's first engine wrote the log: by its own word, or by its lines on sequence groups."""
    told = any(event.name == "preempted" and "cumulative" in event.fields for event in advice.frame.events)
    return told or advice.fact("target.engine_api") == "V0"


def reserve_whole_prompts(advice: Advice) -> Action | None:
    """Prompts admitted only as a whole. None where prompts are short, or for engines without the knob."""
    if advice.system != "vllm" or advice.fact("serving.recomputes") is not True:
        return None
    return advice.action(
        "reserve_full_prompts",
        why=advice.say(
            "a prompt whose first chunk fits is admitted now, and thrown out half-way when the pool is full",
            "目前只要首块放得下就接纳提示，池满时又在中途被赶出",
        ),
        cost=advice.say(
            "long prompts wait for room: their time to first token is the loser",
            "长提示要等空间：受损的是其首 token 时间",
        ),
    )


def raise_conservativeness(advice: Advice) -> Action | None:
    """Admission that counts on longer answers (SGLang)."""
    if advice.system != "sglang":
        return None
    present = advice.number("schedule_conservativeness") or 1.0
    return advice.action(
        "raise_schedule_conservativeness",
        from_value=present,
        to_value=round(present + 0.3, 2),
        why=advice.say("admission then sets aside more for answers still to come", "接纳时会为将要生成的内容多留空间"),
        cost=advice.say("fewer requests run at once: concurrency is the loser", "同时运行的请求变少：受损的是并发"),
    )


def lower_client_concurrency(advice: Advice) -> Action | None:
    """As many requests in flight as the pool holds. None where that is not known."""
    running, waiting = advice.number("serving.running_median"), advice.number("serving.waiting_median")
    if not running or not waiting:
        return None
    return advice.action(
        "lower_client_concurrency",
        from_value=int(running + waiting),
        to_value=max(int(running * 0.9), 1),
        why=advice.say(
            f"{int(running + waiting)} requests are in flight and the pool holds about {int(running)}",
            f"在途请求 {int(running + waiting)} 个，而池约容纳 {int(running)} 个",
        ),
        cost=advice.say("the callers that are held back are the losers", "受损的是被限制的调用方"),
    )


def lower_block_to_lengths(advice: Advice) -> Action | None:
    """A block size that is at most a fourth of a request, in powers of two. None where it is small already."""
    present, length = advice.number("block_size"), advice.number("serving.length_mean")
    if not present or present <= 16 or not length:
        return None
    target = int(max(16, min(2 ** int(math.log2(max(length / 4, 16))), present / 2)))
    return advice.action(
        "lower_block_size",
        from_value=int(present),
        to_value=target,
        why=advice.say(
            f"requests hold about {int(length)} tokens: the last block of each is mostly empty",
            f"请求约 {int(length)} 个 token：每个请求的末块大半空着",
        ),
        cost=advice.say(
            "longer block tables; kernels that want large blocks are the loser", "块表变长；受损的是偏好大块的算子"
        ),
    )


def recompute_now(advice: Advice) -> Action | None:
    """Preempted requests are computed again instead of moved (vLLM V0). None elsewhere."""
    if advice.system != "vllm" or advice.fact("preemption_mode") == "recompute":
        return None
    return advice.action(
        "recompute_instead_of_swap",
        to_value="recompute",
        why=advice.say(
            "computing a short prompt again is quicker than moving its blocks twice", "重算短提示比来回搬块更快"
        ),
        cost=advice.say("long prompts are the loser: they are computed twice", "受损的是长提示：要计算两遍"),
    )


def disable_mm_cache(advice: Advice) -> Action | None:
    """No cache of processed images. None where the load has none, or it is off."""
    images = advice.fact("growth.multimodal") is True
    if advice.system != "vllm" or not images or advice.fact("mm_preprocessor_cache") is False:
        return None
    flag = "--disable-mm-preprocessor-cache" if older_than(advice, 0, 11) else "--mm-processor-cache-gb 0"
    return advice.action(
        "disable_mm_preprocessor_cache",
        flag=flag,
        why=advice.say(
            "processed images are kept in host memory, counted by items and not by bytes",
            "处理后的图像保留在主机内存中，只按个数而不按字节设限",
        ),
        cost=advice.say(
            "repeated images are processed again: their time to first token is the loser",
            "重复图像要重新处理：受损的是其首 token 时间",
        ),
    )


def add_host_ram(advice: Advice) -> Action | None:
    """Memory for what lies on disk. None where the host does not swap."""
    used, size = advice.number("host.swap_used_bytes"), advice.number("host.memory_bytes")
    if not used or used < 1 << 28:
        return None
    return advice.action(
        "raise_host_ram",
        from_value=int(size) if size else None,
        to_value=int(size + 1.15 * used) if size else None,
        why=advice.say(
            f"{size_text(used)} of programs' memory lie on disk", f"有 {size_text(used)} 的程序内存被换到磁盘"
        ),
        cost=advice.say("the hardware; the budget is the loser", "硬件成本：受损的是预算"),
    )
