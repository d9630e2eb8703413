"""Answers that end at their token limit."""

from __future__ import annotations

from infradoc_rules.advise.base import Advice
from infradoc_rules.model import Action

_FACTOR = 4  # times the present cap: by how much the answers are too long cannot be seen, so one clear step
_LEAST = 256  # tokens; a chat answer of a few sentences
_CAP = "histogram_quantile(0.5, sum by (le) (rate(llm_request_max_tokens_bucket[$long])))"
_OUTPUT = "histogram_quantile(0.5, sum by (le) (rate(llm_request_output_tokens_bucket[$long])))"
_PROMPT = "histogram_quantile(0.99, sum by (le) (rate(llm_request_prompt_tokens_bucket[$long])))"


def raise_client_max_tokens(advice: Advice) -> Action | None:
    """Four times the usual cap, at least 256, as far as max_model_len goes beside a long prompt. None at that limit."""
    cap = advice.read(_CAP) or advice.read(_OUTPUT)
    room = advice.number("max_model_len")
    target: int | None = max(_LEAST, round(_FACTOR * cap)) if cap else None
    if target is not None and room is not None:
        target = min(target, int(room - (advice.read(_PROMPT) or 0.0)))
        if cap is not None and target <= cap:
            return None
    return advice.action(
        "raise_client_max_tokens",
        from_value=round(cap) if cap else None,
        to_value=target,
        flag=advice.say("a larger max_tokens in the requests", "在请求中增大 max_tokens")
        if target is None
        else f"max_tokens={target}",
        why=advice.say(
            "answers then end where the model ends them, not in the middle of a sentence",
            "回答会在模型结束处结束，而不是停在句子中间",
        ),
        cost=advice.say(
            "longer answers hold KV blocks and a place in the batch longer: throughput in requests is the loser",
            "回答变长，占用 KV 块和批次位置更久：受损的是每秒请求数",
        ),
    )
