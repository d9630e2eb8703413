"""Answers that end at their token limit."""

from __future__ import annotations

from infradoc_rules.advise.base import Advice
from infradoc_rules.advise.lengths import slots_of
from infradoc_rules.model import Action

_FACTOR = 4  # times the present cap: by how much the answers are too long cannot be seen, so one clear step
_WINDOW_FACTOR = 2  # times the window
_WHOLE = 1e-6  # from a whole number: the mean of requests that all ask for the same
_LEAST = 256  # tokens; a chat answer of a few sentences
_CAP = "histogram_quantile(0.5, sum by (le) (rate(llm_request_max_tokens_bucket[$long])))"
_MEAN_CAP = "sum(increase(llm_request_max_tokens_sum[$long])) / sum(increase(llm_request_max_tokens_count[$long]))"
_OUTPUT = "histogram_quantile(0.5, sum by (le) (rate(llm_request_output_tokens_bucket[$long])))"
_PROMPT = "histogram_quantile(0.99, sum by (le) (rate(llm_request_prompt_tokens_bucket[$long])))"


def raise_client_max_tokens(advice: Advice) -> Action | None:
    """Four times the mean cap, at least 256, as far as max_model_len goes beside a long prompt. None at that limit.

    The present value is named where it is exact: a median from buckets is no number that any client sent.
    """
    if advice.fact("length.capped_by") == "context":
        return None
    mean, told = advice.read(_MEAN_CAP), advice.number("length.cap")
    cap = mean or advice.read(_CAP) or advice.read(_OUTPUT) or told
    present = next((value for value in (mean, told) if value and abs(value - round(value)) < _WHOLE), None)
    room = advice.number("max_model_len")
    target: int | None = max(_LEAST, round(_FACTOR * cap)) if cap else None
    if target is not None and room is not None:
        target = min(target, int(room - (advice.read(_PROMPT) or 0.0)))
        if cap is not None and target <= cap:
            return None
    return advice.action(
        "raise_client_max_tokens",
        from_value=round(present) if present else None,
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


def raise_window_for_output(advice: Advice) -> Action | None:
    """Twice the window, where prompt and answer together fill it: a larger max_tokens would change nothing."""
    if advice.fact("length.capped_by") != "context":
        return None
    window, known = advice.number("length.window"), advice.number("model.max_positions")
    target = round(_WINDOW_FACTOR * window) if window else None
    if target is not None and known is not None:
        target = min(target, round(known))
        if window is not None and target <= window:
            return None  # the model was not trained for more
    slots = slots_of(advice)
    return advice.action(
        "raise_max_model_len",
        from_value=round(window) if window else None,
        to_value=target,
        flag=f"--ctx-size {target * slots}" if target and slots else None,
        why=advice.say(
            "prompt and answer together fill the window: the answer ends where the room ends",
            "提示与回答合起来填满了窗口：空间用尽，回答就此结束",
        ),
        cost=advice.say(
            "KV memory per request grows with the length: fewer requests fit at once, so concurrency is the loser",
            "每个请求的 KV 内存随长度增长：同时容纳的请求变少，受损的是并发",
        ),
    )
