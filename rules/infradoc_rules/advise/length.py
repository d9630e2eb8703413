"""Length limits: which knob carries the limit depends on the engine and on which limit was hit."""

from __future__ import annotations

from dataclasses import replace

from infradoc_rules.advise.base import Advice, round_up
from infradoc_rules.advise.lengths import divided_context, pool_tokens, slots_of
from infradoc_rules.advise.memory import served_change
from infradoc_rules.advise.refusals import (
    REFUSED,
    SHIFTED,
    fits_with_less,
    limit_hit,
    longest_refused,
    room_for_output,
    was_cut,
)
from infradoc_rules.advise.startup import raise_share_for_kv
from infradoc_rules.model import Action
from infradoc_rules.values import number

_STEP = 256  # tokens that a proposed limit is rounded up to
_FINE_STEP = 64  # the same where the length was measured as it was sent
_ENOUGH = 100  # samples of a P99
_NEAR = 0.5  # of the limit; quantiles from buckets may lie a bucket below the truth
_WORTH_LOWERING = 0.75  # of the present limit; less of a cut is not worth a change


def reject_long_prompts(advice: Advice) -> Action | None:
    """Refuse what does not fit instead of cutting it. None where the server already does, or has no such choice."""
    present = advice.fact("truncation_policy")
    if present == "reject" and advice.system == "infradoc":
        return None
    flags = {
        "vllm": "drop truncate_prompt_tokens from the requests",
        "sglang": "drop --allow-auto-truncate",
        "tgi": "drop truncate from the requests",
        "ollama": "truncate=false",
    }
    if advice.system not in (*flags, "infradoc", None):
        return None
    return advice.action(
        "reject_long_prompts",
        from_value=present,
        to_value="reject",
        flag=flags.get(advice.system or ""),
        why=advice.say(
            "the caller learns that a prompt does not fit, instead of getting an answer to half of it",
            "调用方会得知提示放不下，而不是得到只针对一半内容的回答",
        ),
        cost=advice.say(
            "callers with long prompts are the losers: they get HTTP 400 until they shorten or split them",
            "受损的是长提示的调用方：在缩短或拆分之前会得到 HTTP 400",
        ),
    )


def fit_length_limit(advice: Advice) -> Action | None:
    """Take in whole what nearly all clients send (the P99 of prompt + output), and refuse the rest: one change.

    None where neither the engine nor a client's measurements say how long requests were before they were cut, where
    the limit has room already, or where the model was not trained for the length.
    """
    present, sent = advice.number("max_model_len"), _sent_tokens(advice)
    known = advice.number("model.max_positions")
    if advice.system != "infradoc" or not present or not sent:
        return None
    target = round_up(sent, _FINE_STEP)
    if target <= present or (known and target > known):
        return None
    action = advice.action(
        "raise_max_model_len",
        from_value=int(present),
        to_value=target,
        flag=f"--max-model-len {target} --truncation-policy reject",
        why=advice.say(
            f"99 of 100 requests need at most {sent:,.0f} tokens as their clients send them: they are then answered "
            "whole, and a longer one is told so",
            f"按客户端发送的长度，99% 的请求最多需要 {sent:,.0f} 个 token：它们将得到完整处理，更长的会被告知",
        ),
        cost=advice.say(
            "whole prompts take more of each step and of the KV pool: short requests are the losers; callers beyond "
            "the limit get HTTP 400",
            "完整提示会占用更多的步时间和 KV 池：受损的是短请求；超出上限的调用方会得到 HTTP 400",
        ),
    )
    return served_change(advice, replace(action, also=(("truncation_policy", "reject"),)))


def _sent_tokens(advice: Advice) -> float | None:
    """P99 of prompt before any cut + output: the engine's own count of 100 or more, else the client's measurements."""
    counted = advice.read("sum(llm_prompt_tokens_before_truncation_count)") or 0.0
    prompt = advice.read("histogram_quantile(0.99, sum by (le) (llm_prompt_tokens_before_truncation_bucket))")
    answer = advice.read("histogram_quantile(0.99, sum by (le) (llm_request_output_tokens_bucket))")
    if counted >= _ENOUGH and prompt is not None and answer is not None:
        return prompt + answer
    return advice.number("client.request_tokens_p99")


def disable_context_shift(advice: Advice) -> Action | None:
    """llama.cpp drops half the context when a slot is full; without it the request fails loudly."""
    if advice.system != "llamacpp" or not any(event.name == SHIFTED for event in advice.frame.events):
        return None
    return advice.action(
        "disable_context_shift",
        flag="--no-context-shift",
        why=advice.say(
            "a full slot then ends the request instead of forgetting half of it", "槽满时结束请求，而不是丢掉一半内容"
        ),
        cost=advice.say(
            "long generations end early: their callers are the losers", "长生成会提前结束：受损的是其调用方"
        ),
    )


def pool_for_length(advice: Advice) -> Action | None:
    """A larger pool where the engine lowered the length to what its pool holds; None where it did not."""
    return raise_share_for_kv(advice) if _lowered_to(advice) is not None else None


def _lowered_to(advice: Advice) -> float | None:
    """The length that the engine came down to as its pool holds no more; None where it kept the one it was given."""
    for event in reversed(advice.frame.events):
        if event.name == "length_limit_set" and event.fields.get("from_tokens") is not None:
            return number(event.fields.get("to_tokens"))
    return None


def raise_length_limit(advice: Advice) -> Action | None:
    """Raise the limit that was hit, to the longest request seen, rounded up to 256 tokens.

    None where nothing came near the configured limit (what was cut was cut elsewhere, such as by a request field), and
    where the engine itself came down to it, as its pool holds no more.
    """
    if _lowered_to(advice) is not None:
        return None
    configured = advice.number("max_model_len")
    limit, longest = limit_hit(advice.frame.events), longest_refused(advice.frame.events)
    if advice.fact("truncation_policy") != "reject" and fit_length_limit(advice) is not None:
        return None  # the length is known better, and refusing the rest belongs to it
    if longest is None and not was_cut(advice.frame.events) and not _near_limit(advice, configured):
        return None
    limit = limit or (int(configured) if configured else None)
    target = round_up(longest + 1, _STEP) if longest else round_up(2 * limit, _STEP) if limit else None
    if longest and _is_step_budget(advice, limit):
        return _raise(advice, "raise_max_num_batched_tokens", limit, target, longest)
    name = "raise_max_input_tokens" if _is_input_limit(advice) else "raise_max_model_len"
    return _raise(advice, name, limit, target, longest)


def _is_step_budget(advice: Advice, limit: int | None) -> bool:
    """Whether the limit was the token budget of a step: the log says so, or it lies below max_model_len."""
    if any(event.fields.get("which") == "step_budget" for event in advice.frame.events if event.name == REFUSED):
        return True
    if advice.system not in ("vllm", "infradoc", None):
        return False  # the others' smaller limits are those of a slot, or of the prompt alone
    configured, batch = advice.number("max_model_len"), advice.number("max_num_batched_tokens")
    return bool(limit and configured and limit < configured and (batch is None or batch <= limit))


def _is_input_limit(advice: Advice) -> bool:
    """Whether the limit was that of the prompt alone, which these engines set apart."""
    named = [event.fields.get("which") for event in advice.frame.events if event.name == REFUSED]
    if advice.system not in ("tgi", "trtllm"):
        return False
    return "input" in named or (advice.system == "tgi" and "total" not in named)


def _near_limit(advice: Advice, limit: float | None) -> bool:
    """Whether the longest prompts taken in come close to the limit; True where that cannot be seen."""
    longest = advice.read("histogram_quantile(0.99, sum by (le) (rate(llm_request_prompt_tokens_bucket[$long])))")
    return limit is None or longest is None or longest > _NEAR * limit


def _raise(advice: Advice, name: str, limit: int | None, target: int | None, longest: int | None) -> Action | None:
    if limit and target and target <= limit:
        target = round_up(limit + 1, _STEP)
    known = advice.number("model.max_positions")
    if known and target and target > known:
        return None  # the model was not trained for it: shorter requests are the only honest advice
    action = advice.action(
        name,
        from_value=limit,
        to_value=target,
        flag=_flag(advice, target) if name == "raise_max_model_len" else None,
        why=advice.say(
            f"the longest request seen needs {longest:,} tokens" if longest else "requests are longer than the limit",
            f"见到的最长请求需要 {longest:,} 个 token" if longest else "请求长于上限",
        )
        + (divided_context(advice, per_slot=slots_of(advice) is None) if name == "raise_max_model_len" else ""),
        cost=advice.say(
            "KV memory per request grows with the length: fewer requests fit at once, so concurrency is the loser",
            "每个请求的 KV 内存随长度增长：同时容纳的请求变少，受损的是并发",
        ),
    )
    return served_change(advice, action) if name == "raise_max_model_len" else action


def lower_max_model_len(advice: Advice) -> Action | None:
    """The P99 of prompt + output (or the longest context seen), rounded up to 256. None where that is no quarter less.

    Where each slot has a context of its own, the freed memory becomes further slots.
    """
    present, longest = advice.number("max_model_len") or advice.number("length.window"), _longest_served(advice)
    if not present or not longest:
        return None
    target = round_up(longest, _STEP)
    if target > _WORTH_LOWERING * present:
        return None
    slots, pool = advice.number("max_num_seqs"), pool_tokens(advice)
    own = advice.system == "llamacpp" and slots
    before = int(slots or 0) if own else int(pool / present) if pool else None
    after = int(present * (slots or 0)) // target if own else pool // target if pool else None
    gain = advice.say(f": {before} such requests fit now, {after} then", f"：现在容得下 {before} 个，之后 {after} 个")
    action = advice.action(
        "lower_max_model_len",
        from_value=int(present),
        to_value=target,
        flag=f"--parallel {after} --ctx-size {target * (after or 1)}" if own else None,
        why=advice.say(
            f"the longest requests served have {longest:,.0f} tokens", f"实际服务的最长请求为 {longest:,.0f} 个 token"
        )
        + (gain if after is not None else "")
        + divided_context(advice, per_slot=not own),
        cost=advice.say(
            "a longer request than seen so far is then refused: its caller is the loser",
            "比目前所见更长的请求将被拒绝：受损的是其调用方",
        ),
    )
    return served_change(advice, action)


def _longest_served(advice: Advice) -> float | None:
    """P99 of prompt + output, or the longest context where the engine counts no lengths, in tokens."""
    prompt, output = (
        advice.read(f"histogram_quantile(0.99, sum by (le) (llm_request_{part}_tokens_bucket))")
        for part in ("prompt", "output")
    )
    if prompt is None or output is None:
        return advice.read("max(llm_context_longest_tokens)") or advice.number("length.longest")
    return prompt + output


def _flag(advice: Advice, target: int | None) -> str | None:
    """llama.cpp's context is divided across its slots, so the flag carries slots x length."""
    slots = slots_of(advice)
    return f"--ctx-size {target * slots}" if target and slots else None


def lower_client_max_tokens(advice: Advice) -> Action | None:
    """Ask for fewer output tokens, so that prompt + output fits. None where the prompts alone are over the limit."""
    refused = [event for event in advice.frame.events if event.name == REFUSED and "tokens" in event.fields]
    if refused and not any(fits_with_less(event) for event in refused):
        return None
    asked, target = room_for_output(refused)
    return advice.action(
        "lower_client_max_tokens",
        from_value=asked,
        to_value=target,
        flag=f"max_tokens={target}"
        if target
        else advice.say("a smaller max_tokens in the requests", "在请求中减小 max_tokens"),
        why=advice.say("prompt + max_tokens then fits the limit", "提示 + max_tokens 即可落在上限内"),
        cost=advice.say("answers may end early: their readers are the losers", "回答可能提前结束：受损的是读者"),
    )


def reserve_less(advice: Advice) -> Action | None:
    """Requests that name their answer's length. None where the engine reserves as it goes."""
    length, policy = advice.number("max_model_len"), advice.fact("scheduling_policy")
    if policy != "GUARANTEED_NO_EVICT" or not length:
        return None
    return advice.action(
        "lower_client_max_tokens",
        to_value=None,
        flag=advice.say("max_tokens in each request", "在每个请求中写明 max_tokens"),
        why=advice.say(
            f"without it a request reserves {length:,.0f} tokens of KV until it ends, and others wait for that room",
            f"不写明时每个请求在结束前预留 {length:,.0f} 个 token 的 KV，其他请求只能等待",
        ),
        cost=advice.say("answers may end early: their readers are the losers", "回答可能提前结束：受损的是读者"),
    )


def shorten_client_prompts(advice: Advice) -> Action:
    """Send less text."""
    return advice.action(
        "shorten_client_prompts",
        why=advice.say("prompts that fit need no change of the server", "放得下的提示不需要改动服务端"),
        cost=advice.say("the caller is the loser: it must split or summarise", "受损的是调用方：需要拆分或摘要"),
    )
