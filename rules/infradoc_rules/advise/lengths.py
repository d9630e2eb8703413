"""Measured lengths and room: what the sizing functions share. Suggestions follow the P99, not a guess."""

from __future__ import annotations

import math

from infradoc_rules.advise.base import Advice

_QUANTILE = "histogram_quantile(0.99, sum by (le) ({name}_bucket))"
_DEFAULT_BLOCK = {"lmdeploy": 64, "sglang": 1, "tgi": 1}  # 16 on the others


def block_size(advice: Advice) -> int:
    """Tokens per KV block, the engine's usual number when it does not say."""
    size = advice.number("block_size") or advice.hint("block_size") or advice.read("max(llm_kv_block_size_tokens)")
    return int(size) if size else _DEFAULT_BLOCK.get(advice.system or "", 16)


def pool_tokens(advice: Advice) -> int | None:
    """Tokens that the KV pool holds."""
    tokens = advice.read("sum(llm_kv_pool_tokens)") or advice.number("kv_pool_tokens")
    blocks = advice.number("kv.pool_blocks")
    if not tokens and blocks:
        tokens = blocks * block_size(advice)
    return int(tokens) if tokens else None


def measured_tokens(advice: Advice) -> int | None:
    """KV tokens of one long request, in whole blocks: P99 of prompt plus P99 of output, at most max_model_len.

    None when no request has finished yet.
    """
    prompt = advice.read(_QUANTILE.format(name="llm_request_prompt_tokens"))
    output = advice.read(_QUANTILE.format(name="llm_request_output_tokens"))
    if prompt is None or output is None:
        return None
    return _whole_blocks(advice, min(prompt + output, advice.number("max_model_len") or math.inf))


def request_tokens(advice: Advice) -> int | None:
    """`measured_tokens`, or max_model_len where nothing was measured. None when that is not known either."""
    limit = advice.number("max_model_len")
    return measured_tokens(advice) or (_whole_blocks(advice, limit) if limit else None)


def _whole_blocks(advice: Advice, tokens: float) -> int:
    size = block_size(advice)
    return math.ceil(tokens / size) * size


def concurrency(advice: Advice) -> int | None:
    """Requests that would run at once if the pool were large enough: running and waiting, at most max_num_seqs."""
    together = advice.read("max(llm_requests_running + llm_requests_waiting)")
    peak = advice.read("max(max_over_time(llm_requests_running[$long]))")
    limit = advice.number("max_num_seqs")
    seen = [value for value in (together, peak) if value]
    if not seen:
        return int(limit) if limit else None
    return int(min(max(seen), limit or math.inf))


def mean_tokens(advice: Advice) -> float | None:
    """Mean prompt + output of the requests that finished lately, of all where none did; None when none is known."""
    lately = [
        f"sum(rate(llm_request_{part}_tokens_sum[$long])) / sum(rate(llm_request_{part}_tokens_count[$long]))"
        for part in ("prompt", "output")
    ]
    ever = [
        f"sum(llm_request_{part}_tokens_sum) / sum(llm_request_{part}_tokens_count)" for part in ("prompt", "output")
    ]
    for pair in (lately, ever):
        prompt, output = (advice.read(text) for text in pair)
        if prompt is not None and output is not None:
            return prompt + output
    return None


def slots_of(advice: Advice) -> int | None:
    """Slots of a llama.cpp server, which share one context; None on other engines and where it is not known."""
    slots = advice.number("max_num_seqs") or advice.last("kv_allocated", "slots")
    return int(slots) if advice.system == "llamacpp" and slots else None


def divided_context(advice: Advice, per_slot: bool = False) -> str:
    """What a user of llama.cpp has to know about its flag. per_slot: the flag shown is the length of one slot."""
    if advice.system != "llamacpp":
        return ""
    if per_slot:
        return advice.say(
            "; --ctx-size is shared by the slots (-np, --parallel): this is the length of one, so multiply it by their "
            "number",
            "；--ctx-size 由各槽位（-np、--parallel）共用：这里是单个槽位的长度，请乘以槽位数",
        )
    return advice.say(
        "; --ctx-size is shared by the slots (-np, --parallel), so it is slots x length",
        "；--ctx-size 由各槽位（-np、--parallel）共用，因此等于槽位数 × 长度",
    )
