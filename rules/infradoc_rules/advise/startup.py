"""Starts that break off for memory: the share, the length, the weights, the devices."""

from __future__ import annotations

import math
from collections.abc import Mapping

from infradoc_rules.advise.base import Advice
from infradoc_rules.advise.device import (
    LARGEST_SHARE,
    Present,
    counts_foreign_memory,
    device_bytes,
    is_v1,
    older_than,
    others_share,
    present_share,
    share_note,
)
from infradoc_rules.advise.device import present as present_of
from infradoc_rules.advise.startup_account import joined, requests_of
from infradoc_rules.model import Action, Value
from infradoc_rules.units import size_text

_SMALL_STEP = 2048  # tokens: what chunked prefill takes on small devices
_CHUNKED_ABOVE = 32_768
_TGI_SPARE = 50  # tokens over the longest prompt, as it adds by itself
_NO_SHARE = ("llamacpp", "ollama", "infradoc")  # nothing is derived from a share there
_KV_8BIT: Mapping[str, Value] = {
    "vllm": "fp8",
    "sglang": "fp8_e5m2",
    "tgi": "fp8_e5m2",
    "llamacpp": "q8_0",
    "ollama": "q8_0",
    "lmdeploy": 8,
    "trtllm": "fp8",
}


def raise_share_for_kv(advice: Advice) -> Action | None:
    """The share that leaves room for one request. None where another process is in the way, or no share would do."""
    present = present_share(advice)
    if advice.system in _NO_SHARE or (present is not None and present >= LARGEST_SHARE):
        return None
    if advice.fact("gpu.shared") is True and not counts_foreign_memory(advice):
        return None
    target = _share_for_kv(advice, present)
    if present is not None and target is not None and target <= present:
        return None
    return advice.action(
        "raise_gpu_memory_utilization",
        from_value=present,
        to_value=target,
        why=joined(advice, *_why_more(advice), _what_it_gives(advice, target)) + share_note(advice),
        cost=advice.say(
            "less room above the share: graph capture and unusual steps are the losers, they may run out of memory",
            "份额之上的余量变小：受损的是图捕获和少见的大步，它们可能内存不足",
        ),
    )


def _why_more(advice: Advice) -> tuple[str, str]:
    lacking = _lacking(advice)
    if counts_foreign_memory(advice) and others_share(advice):
        return (
            f"this version takes the {others_share(advice):.0%} of others for its own: the share has to cover them",
            f"该版本把其他进程占用的 {others_share(advice):.0%} 当成自己的：份额要把它们也包括进去",
        )
    if lacking:
        return (
            f"the KV cache gets all of the added share; {size_text(lacking)} are missing",
            f"增加的份额全部归 KV 缓存；还差 {size_text(lacking)}",
        )
    return (
        "the share covers weights, activations and KV together, and all that is added goes to KV",
        "该份额同时容纳权重、激活和 KV，增加的部分全部归 KV",
    )


def _what_it_gives(advice: Advice, target: float | None) -> tuple[str, str] | None:
    """The requests of the account's share; where no share holds one, that the length has to go down as well."""
    share, needed = advice.number("account.fit_share"), advice.number("account.needed_bytes")
    if share is not None and target is not None and abs(share - target) < 0.005:
        return requests_of(advice, "share")
    if share is not None or not needed or advice.fact("account.problem") not in ("no_kv", "kv_too_small"):
        return None
    return (
        f"one request of the whole length takes {size_text(needed)}, which no share leaves: lower the length as well",
        f"一个最长的请求需要 {size_text(needed)}，任何份额都不够：还要降低长度",
    )


def _lacking(advice: Advice) -> float | None:
    """Bytes per device between what is left for KV and what is needed at least."""
    left = advice.number("kv.available_bytes")
    needed = advice.number("kv.needed_bytes") or 0.0
    return max(needed - left, 0.0) or None if left is not None else None


def _share_for_kv(advice: Advice, present: float | None) -> float | None:
    least = advice.number("kv.least_share")
    if least is not None:
        return min(math.ceil(least * 100 + 0.5) / 100, 0.98)
    if present is None:
        return None
    if counts_foreign_memory(advice) and others_share(advice):
        return round(min(LARGEST_SHARE, present + others_share(advice)), 2)
    lacking, size = _lacking(advice), device_bytes(advice) or advice.number("account.device_bytes")
    if lacking is None or size is None:
        computed = advice.number("account.fit_share")
        return computed if computed is not None and computed > present else round(min(LARGEST_SHARE, present + 0.05), 2)
    fitting = math.ceil((present + lacking / size) * 100 + 0.5) / 100
    if fitting > 0.97 and advice.fact("kv.verdict") == "none":
        return present  # no share holds it: smaller steps, quantized weights or more devices do
    # A first block is not enough: the cache has to hold a longest request as well.
    whole = (advice.number("account.needed_bytes") or 0.0) if advice.number("kv.needed_bytes") is None else 0.0
    return round(min(LARGEST_SHARE, math.ceil((fitting + whole / size) * 100) / 100), 2)


def lower_len_to_fit(advice: Advice) -> Action | None:
    """The longest request that the KV cache holds, as the engine estimates it or in proportion."""
    asked = advice.number("kv.asked_len") or advice.number("max_model_len")
    fitting = advice.number("kv.fit_max_len")
    left, needed = advice.number("kv.available_bytes"), advice.number("kv.needed_bytes")
    if fitting is None and asked and left and needed:
        fitting = asked * left / needed
    if fitting is None:
        fitting = advice.number("account.fit_max_len")
    if asked is not None and fitting is not None and fitting >= asked:
        return None
    target = int(fitting) if fitting else None
    if target and target > 1024:
        target = target // 256 * 256
    return advice.action(
        "lower_max_model_len",
        from_value=int(asked) if asked else None,
        to_value=target,
        why=joined(
            advice,
            "the KV cache must hold one request of this length; it holds no longer one",
            "KV 缓存至少要放得下一个这样长的请求；目前放不下更长的",
            _bytes_of_token(advice, target),
        ),
        cost=advice.say(
            "requests longer than this are refused: they are the losers", "更长的请求会被拒绝：受损的是长请求"
        ),
    )


def _bytes_of_token(advice: Advice, target: int | None) -> tuple[str, str] | None:
    """What a token takes, and from which length on two requests run at once."""
    size = advice.number("account.kv_bytes_per_token")
    if not size or not target:
        return None
    return (
        f"a token takes {size:,.0f} bytes of it on each GPU, so two requests fit from {target // 2:,} tokens down",
        f"每个 token 在每张 GPU 上占 {size:,.0f} 字节，因此不超过 {target // 2:,} token 时可同时容纳两个请求",
    )


def lower_len_without_chunks(advice: Advice) -> Action | None:
    """vLLM before 0.6 computes a prompt in one step, so the length sets the size of the profiled step."""
    present = advice.number("max_model_len")
    if advice.system != "vllm" or not older_than(advice, 0, 6, 0) or not present:
        return None
    return advice.action(
        "lower_max_model_len",
        from_value=int(present),
        to_value=max(int(present) // 2, 1),
        why=advice.say(
            "this version computes a prompt in one step: the step that is measured at start is as long as this",
            "该版本一步算完整个提示：启动时测量的那一步就有这么长",
        ),
        cost=advice.say(
            "requests longer than this are refused: they are the losers", "更长的请求会被拒绝：受损的是长请求"
        ),
    )


def lower_step_at_start(advice: Advice) -> Action | None:
    """A quarter of the step budget: the profiled activations shrink with it, and what they give up goes to KV."""
    if advice.system in ("llamacpp", "ollama") or (advice.system == "vllm" and older_than(advice, 0, 6, 0)):
        return None
    said = advice.last("prefill_budget", "tokens")
    known = present_of(advice, "max_num_batched_tokens") if said is None else Present(said)
    whole = _whole_prompts(advice)
    if known.value is None and whole:
        known = Present(max(advice.number("max_model_len") or 0, _SMALL_STEP))
    present = known.value
    least = max(advice.number("max_num_seqs") or 0, 1024)
    target = None if present is None else int(max(present / 4, least))
    if present is not None and target is not None and target >= present:
        return None
    if present is None and advice.system in ("vllm", "sglang", "lmdeploy", "tgi"):
        # TGI refuses to start with a step below its longest prompt.
        target = int(max(_SMALL_STEP, (advice.number("max_input_tokens") or 0) + _TGI_SPARE))
        target = target if advice.system == "tgi" else _SMALL_STEP
    return advice.action(
        "lower_max_num_batched_tokens",
        from_value=int(present) if present else None,
        to_value=target,
        flag=f"--enable-chunked-prefill --max-num-batched-tokens {target}" if target and whole else None,
        why=advice.say(
            "the largest step is measured at start and its activations are taken off the KV cache",
            "启动时会测量最大的一步，其激活从 KV 缓存中扣除",
        )
        + known.note,
        cost=advice.say(
            "long prompts take more steps: their time to first token is the loser",
            "长提示要分更多步：受损的是其首 token 时间",
        ),
    )


def _whole_prompts(advice: Advice) -> bool:
    """Whether this is vLLM's V0 engine with the longest prompt in one step: what it does up to 32,768 tokens."""
    length = advice.number("max_model_len")
    if advice.system != "vllm" or is_v1(advice) or advice.fact("chunked_prefill") is True:
        return False
    return length is not None and length <= _CHUNKED_ABOVE


def quantize_kv_cache(advice: Advice) -> Action | None:
    """8 bits for keys and values: half the bytes a token. None where that is so already."""
    present = advice.fact("kv_cache_dtype")
    if str(present).lower().startswith(("fp8", "int8", "q8", "q4", "8", "4")) or advice.system == "infradoc":
        return None
    if advice.system == "vllm" and older_than(advice, 0, 3, 0):
        return None  # the first version with an 8-bit cache
    return advice.action(
        "quantize_kv_cache",
        from_value=present,
        to_value=_KV_8BIT.get(advice.system or "", "fp8"),
        why=joined(
            advice, "the same memory holds twice the tokens", "同样的显存可容纳两倍的 token", requests_of(advice, "kv8")
        ),
        cost=advice.say(
            "long contexts may lose accuracy: their callers are the losers",
            "长上下文的准确度可能下降：受损的是其调用方",
        ),
    )


def _fewer_layers(advice: Advice) -> str:
    """Where how many layers were placed is not told: half of them, as a start."""
    half = advice.say("<half of the layers>", "<一半的层>")
    return f"num_gpu={half}" if advice.system == "ollama" else f"--n-gpu-layers {half}"


def lower_layers_on_device(advice: Advice) -> Action | None:
    """Fewer layers on the device (llama.cpp, Ollama), in proportion to what fits."""
    if advice.system not in ("llamacpp", "ollama"):
        return None
    placed = advice.last("layers_placed", "placed")
    return advice.action(
        "lower_n_gpu_layers",
        from_value=int(placed) if placed else None,
        to_value=int(placed * 0.8) if placed else None,
        flag=None if placed else _fewer_layers(advice),
        why=advice.say("what is not placed on the device needs none of its memory", "不放在设备上的层不占其显存"),
        cost=advice.say("every token gets slower: all callers are the losers", "每个 token 都变慢：所有调用方受损"),
    )
