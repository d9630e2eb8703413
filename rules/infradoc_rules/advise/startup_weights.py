"""Starts whose weights or largest batch take too much: more devices, a smaller checkpoint, fewer requests at once."""

from __future__ import annotations

from infradoc_rules.advise.base import Advice
from infradoc_rules.advise.startup_account import joined, per_gpu, requests_of, weights_of_all
from infradoc_rules.knobs import knob_table
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Action
from infradoc_rules.units import size_text

_FOUR_BITS = lazy(
    r"(?i)(?:^|[-_./:])(?:i?q[1-4](?:_\w+)?|awq|gptq|int4|nf4|w4a16|4bit|bnb-4bit)(?:[-_./]|$)"
)  # in a name
_NO_SPLIT = ("llamacpp", "ollama", "infradoc")  # layers are spread by themselves, or there is one device
_QUANTIZED = {
    "vllm": ("AWQ or FP8", "AWQ 或 FP8"),
    "sglang": ("AWQ or FP8", "AWQ 或 FP8"),
    "tgi": ("AWQ or GPTQ", "AWQ 或 GPTQ"),
    "lmdeploy": ("AWQ 4-bit", "AWQ 4 位"),
    "trtllm": ("FP8", "FP8"),
}
_FEWEST = 16  # requests at once: below it a server has no batch


def raise_tensor_parallel(advice: Advice) -> Action | None:
    """As many devices as hold the model by the account, and never more than the host has; twice the present number
    where there is no account. None for llama.cpp and Ollama, which spread layers by themselves."""
    present = int(advice.number("tensor_parallel_size") or 1)
    target = _devices(advice, present)
    if advice.system in _NO_SPLIT or target is None:
        return None
    return advice.action(
        "raise_tensor_parallel_size",
        from_value=present if advice.number("tensor_parallel_size") else None,
        to_value=target,
        why=joined(
            advice,
            "each device holds a part of the weights and of the KV cache",
            "每个设备只存一部分权重和 KV 缓存",
            weights_of_all(advice),
            _shorter(advice) or requests_of(advice, "tp"),
        ),
        cost=advice.say(
            "more devices: the budget is the loser; each step also waits for the exchange between them",
            "需要更多设备：受损的是预算；每一步还要等待设备间通信",
        ),
    )


def _devices(advice: Advice, present: int) -> int | None:
    host = advice.number("gpu.count")
    if host is not None and host <= present:
        return None
    computed = advice.number("account.fit_tp")
    if computed is not None:
        return int(computed)
    if advice.fact("account.problem") in ("weights", "no_kv", "kv_too_small"):
        return None  # the account knows the model, and no number of devices holds it
    return 2 * present if host is None or 2 * present <= host else None


def _shorter(advice: Advice) -> tuple[str, str] | None:
    """Where no number of devices holds the whole length."""
    length = advice.number("account.fit_tp_max_len")
    if length is None:
        return None
    return (
        f"with them a request may have {length:,.0f} tokens: lower the length to that as well",
        f"此时单个请求最多 {length:,.0f} 个 token：长度也要降到该值",
    )


def use_smaller_checkpoint(advice: Advice) -> Action:
    """Quantized weights, or a smaller model where they are quantized already."""
    names = (advice.fact(name) for name in ("model_checkpoint", "model.name"))
    done = str(advice.fact("quantization") or "none").lower() not in ("none", "null", "")
    done = done or any(name is not None and _FOUR_BITS.search(str(name)) for name in names)
    if done:
        target = advice.say("a smaller model, or a checkpoint quantized throughout", "更小的模型，或完全量化的权重")
    else:
        en, zh = _QUANTIZED.get(advice.system or "", ("4-bit", "4 位量化"))
        target = advice.say(f"{en} weights of this model", f"该模型的 {zh} 权重")
    return advice.action(
        "use_smaller_checkpoint",
        from_value=advice.fact("model_checkpoint"),
        to_value=target,
        flag=_weights_flag(advice),
        why=joined(
            advice,
            "weights take the same memory whatever the share is",
            "无论份额多少，权重占用的显存不变",
            None if done else _in_four_bits(advice),
        ),
        cost=advice.say("callers are the losers: answers may get somewhat worse", "受损的是调用方：回答质量可能略降"),
    )


def _weights_flag(advice: Advice) -> str | None:
    """What names the weights; for a trainer, how they are loaded in 4 bits (adapters are then what is trained)."""
    if advice.fact("train.oom_place") is not None:
        return "BitsAndBytesConfig(load_in_4bit=True) with LoRA adapters"
    if advice.system == "ollama":
        return "ollama run <model>:<size>-q4_K_M"
    return knob_table().flag(advice.system, "model_checkpoint") if advice.system else None


def _in_four_bits(advice: Advice) -> tuple[str, str] | None:
    small, now = per_gpu(advice, "four_bit_bytes_per_gpu"), per_gpu(advice, "weights_bytes_per_gpu")
    if small is None or now is None:
        return None
    count, length = (advice.number(f"account.fit_four_bit_{name}") for name in ("requests", "max_len"))
    fitting = ("", "")
    if count:
        fitting = (
            f", and the KV cache holds {count:.1f} longest requests at once",
            f"，KV 缓存可同时容纳 {count:.1f} 个最长的请求",
        )
    elif length:
        fitting = (f", and a request may have {length:,.0f} tokens", f"，单个请求最多 {length:,.0f} 个 token")
    return (
        f"in four bits they take {small} on each GPU instead of {now}{fitting[0]}",
        f"4 位量化后每张 GPU 只占 {small}，而不是 {now}{fitting[1]}",
    )


def lower_seqs_for_profile(advice: Advice) -> Action | None:
    """Fewer requests at once, where their logits are the peak that is measured at start and nothing is left for KV.

    None where steps of fewer tokens help instead, or where even a small batch does not free what is missing.
    """
    present, each = advice.number("account.step_requests"), advice.number("account.request_bytes")
    lacking = advice.number("account.kv_bytes")
    if advice.fact("account.activation_from") != "requests" or not present or not each or lacking is None:
        return None
    target = 256 if present > 256 else int(present) // 4
    freed = (present - target) * each
    if lacking >= 0 or target < _FEWEST or freed <= -lacking:
        return None
    return advice.action(
        "lower_max_num_seqs",
        from_value=int(present),
        to_value=target,
        why=advice.say(
            f"the logits of {present:.0f} requests are the peak that is measured at start: {size_text(freed)} less go "
            "to them and more to KV",
            f"启动时测得的峰值来自 {present:.0f} 个请求的 logits：可少占 {size_text(freed)}，省下的归 KV",
        ),
        cost=advice.say(
            "fewer requests run at once: time to first token is the loser under load",
            "同时运行的请求变少：负载高时受损的是首 token 时间",
        ),
    )
