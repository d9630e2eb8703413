"""Measured lengths and room: what the sizing functions share. Suggestions follow the P99, not a guess."""

from __future__ import annotations

import math

from infradoc_rules.advise.base import Advice

_QUANTILE = "histogram_quantile(0.99, sum by (le) ({name}_bucket))"
_DEFAULT_BLOCK = 16


def block_size(advice: Advice) -> int:
    """Tokens per KV block, 16 when the engine does not say."""
    size = advice.number("block_size") or advice.hint("block_size") or advice.read("max(llm_kv_block_size_tokens)")
    return int(size) if size else _DEFAULT_BLOCK


def pool_tokens(advice: Advice) -> int | None:
    """Tokens that the KV pool holds."""
    tokens = advice.read("sum(llm_kv_pool_tokens)") or advice.number("kv_pool_tokens")
    return int(tokens) if tokens else None


def request_tokens(advice: Advice) -> int | None:
    """KV tokens of one long request, in whole blocks: P99 of prompt plus P99 of output, at most max_model_len.

    None when no request has finished yet and no limit is known.
    """
    prompt = advice.read(_QUANTILE.format(name="llm_request_prompt_tokens"))
    output = advice.read(_QUANTILE.format(name="llm_request_output_tokens"))
    limit = advice.number("max_model_len")
    if prompt is None or output is None:
        longest = limit
    else:
        longest = min(prompt + output, limit) if limit else prompt + output
    if not longest:
        return None
    size = block_size(advice)
    return math.ceil(longest / size) * size


def concurrency(advice: Advice) -> int | None:
    """Requests that would run at once if the pool were large enough: running and waiting, at most max_num_seqs."""
    together = advice.read("max(llm_requests_running + llm_requests_waiting)")
    peak = advice.read("max(max_over_time(llm_requests_running[$long]))")
    limit = advice.number("max_num_seqs")
    seen = [value for value in (together, peak) if value]
    if not seen:
        return int(limit) if limit else None
    return int(min(max(seen), limit or math.inf))
