"""What the start-up memory account says in an action's reason."""

from __future__ import annotations

from infradoc_rules.advise.base import Advice
from infradoc_rules.units import size_text

_ROUND = 256  # tokens


def weights_of_all(advice: Advice) -> tuple[str, str] | None:
    """ "the weights alone take 141 GB of the 158 GB of 2 GPUs", in both languages; None where they are not known.

    Decimal GB: people compare them with the size of the checkpoint and of the card.
    """
    weights, device, gpus = (advice.number(f"account.{name}") for name in ("weights_bytes", "device_bytes", "gpus"))
    if not weights or not device or not gpus:
        return None
    took, size, many = f"{weights / 1e9:.0f} GB", f"{device * gpus / 1e9:.0f} GB", f"{gpus:.0f} GPU{'s' * (gpus > 1)}"
    if weights > device * gpus:
        return (
            f"the weights alone take {took}, and there are {size} on {many}",
            f"仅权重就要 {took}，{gpus:.0f} 张 GPU 共有 {size}",
        )
    return (
        f"the weights alone take {took} of the {size} of {many}",
        f"{gpus:.0f} 张 GPU 共 {size}，仅权重就占 {took}",
    )


def requests_of(advice: Advice, name: str) -> tuple[str, str] | None:
    """ "then the KV cache holds 1.6 requests of 32,768 tokens at once", of account.NAME_requests; None where unknown.

    Of the length asked for; `name` "tp" may hold only shorter ones.
    """
    count = advice.number(f"account.fit_{name}_requests")
    length = advice.number("kv.asked_len") or advice.number("max_model_len")
    if count is None or count < 1:
        return None
    tokens = (f" of {length:,.0f} tokens", f" {length:,.0f} token 的") if length else ("", "")
    return (
        f"then the KV cache holds {count:.1f} requests{tokens[0]} at once",
        f"此时 KV 缓存可同时容纳 {count:.1f} 个{tokens[1]}请求",
    )


def requests_under(advice: Advice, present: float | None, share: float | None) -> tuple[str, str] | None:
    """The requests that the KV cache holds at another share of the device; None where the account does not say."""
    kv, size, needed = (advice.number(f"account.{name}") for name in ("kv_bytes", "device_bytes", "needed_bytes"))
    if kv is None or not size or not needed or present is None or share is None:
        return None
    count = (kv - (present - share) * size) / needed
    length = advice.number("kv.asked_len") or advice.number("max_model_len")
    tokens = int(count * (length or 0.0)) // _ROUND * _ROUND
    if count < 1 and tokens >= _ROUND:
        return (
            f"the KV cache then holds {tokens:,} tokens: lower the length to that as well",
            f"此时 KV 缓存只能容纳 {tokens:,} 个 token：长度也要降到该值",
        )
    if count < 1:
        return None
    return (
        f"the KV cache then holds {count:.1f} longest requests at once",
        f"此时 KV 缓存可同时容纳 {count:.1f} 个最长的请求",
    )


def joined(advice: Advice, en: str, zh: str, *more: tuple[str, str] | None) -> str:
    """A reason and what the account adds to it, as one sentence."""
    texts = [advice.say(en, zh), *(advice.say(*pair) for pair in more if pair is not None)]
    return advice.say("; ", "；").join(texts)


def per_gpu(advice: Advice, name: str) -> str | None:
    """Bytes on one GPU as text; None where they are not known."""
    count = advice.number(f"account.{name}")
    return size_text(count) if count else None
