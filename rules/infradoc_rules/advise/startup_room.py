"""Starts that break off above the KV pool (in the sampler), or in the pool itself."""

from __future__ import annotations

import math

from infradoc_rules.advise.base import Advice
from infradoc_rules.advise.device import device_bytes, present_share, share_note
from infradoc_rules.advise.device import present as present_of
from infradoc_rules.advise.startup_account import joined, requests_under
from infradoc_rules.model import Action
from infradoc_rules.sizing.account import CONTEXT
from infradoc_rules.units import size_text

_STEP = 0.05  # of the device, at least: a graph or a sampler asks for more after what was refused
_HEADROOM = 1.5  # over what the refused request lacked
_FURTHER = 0.1  # of the device: what an estimate of the graphs may add to the step
_SGLANG_SHARE = 0.85  # what it works out for most devices of 24 GB and up
_USUAL_SEQS = (128, 256, 512, 1024)  # max_num_seqs as engines set it by themselves
_CONTEXT = {"llamacpp": 8192, "ollama": 4096}  # tokens: a start that most devices hold, where the present is not known
_NO_SHARE = ("llamacpp", "ollama", "infradoc")


def lower_share_for_room(advice: Advice) -> Action | None:
    """The share that leaves above the pool what was refused there."""
    if advice.system in _NO_SHARE:
        return None
    present = present_share(advice)
    want, free, size = (advice.number(f"oom.{name}_bytes") for name in ("want", "free", "total"))
    size = size or device_bytes(advice)
    lacking = max(want - (free or 0.0), 0.0) if want else None
    step = max(_STEP, lacking * _HEADROOM / size) if lacking and size else _STEP
    taken = present if present is not None else _taken(advice, size)
    target = None if taken is None else math.floor((taken - step) * 100 + 1e-6) / 100
    if target is not None:
        target = min(target, max(_share_beside_graphs(advice, size), target - _FURTHER))
    if target is not None and target < 0.1:
        return None
    return advice.action(
        "lower_gpu_memory_utilization",
        from_value=present,
        to_value=target,
        why=joined(
            advice,
            f"{size_text(want)} were asked for above the KV pool and {size_text(free or 0.0)} were free"
            if want
            else "what runs beside the KV pool needs room above the share",
            f"KV 池之外要 {size_text(want)}，空闲只有 {size_text(free or 0.0)}"
            if want
            else "KV 池之外的部分需要份额之上的空间",
            requests_under(advice, present, target),
        )
        + share_note(advice),
        cost=advice.say(
            "a smaller KV pool: fewer requests run at once, so concurrency is the loser",
            "KV 池变小：同时运行的请求变少，受损的是并发",
        ),
    )


def _taken(advice: Advice, size: float | None) -> float | None:
    """SGLang, which works its share out: what it had taken of the device when the pool was there, or a usual share."""
    if advice.system != "sglang":
        return None
    left = advice.last("memory_account", "free_bytes")
    return 1 - left / size if left and size and left < size / 2 else _SGLANG_SHARE


def _share_beside_graphs(advice: Advice, size: float | None) -> float:
    """The share that leaves room for all graphs, where they broke the start; 1 where their size is not known."""
    graphs = advice.number("account.graph_bytes")
    if advice.fact("oom.phase") != "graph_capture" or not graphs or not size:
        return 1.0
    return math.floor((size - graphs - CONTEXT) / size * 100) / 100


def lower_seqs_for_sampler(advice: Advice) -> Action:
    """As many dummy requests as fit beside the pool, in powers of two."""
    asked = advice.number("oom.dummy_requests") or advice.number("max_num_seqs") or _dummies(advice)
    note = ""
    if asked is None:
        asked, note = (known := present_of(advice, "max_num_seqs")).value, known.note
    want, free = advice.number("oom.want_bytes"), advice.number("oom.free_bytes")
    target = None
    if asked:
        share = 0.7 * free / want if want and free is not None else 0.25
        fitting = max(asked * min(share, 0.5), 8.0)
        target = 2 ** int(math.log2(fitting))
    return advice.action(
        "lower_max_num_seqs",
        from_value=int(asked) if asked else None,
        to_value=target,
        why=advice.say(
            "the sampler is tried with this many requests at once; its logits grow with vocabulary times requests",
            "采样器会以这么多请求同时试运行；其 logits 随词表大小乘以请求数增长",
        )
        + note,
        cost=advice.say(
            "fewer requests run at once: time to first token is the loser under load",
            "同时运行的请求变少：负载高时受损的是首 token 时间",
        ),
    )


def _dummies(advice: Advice) -> float | None:
    """How many requests the refused logits were of: one of the usual limits times a vocabulary of 32-bit numbers."""
    want, vocabulary = advice.number("oom.want_bytes"), advice.number("account.vocabulary")
    if not want or not vocabulary:
        return None
    requests = want / vocabulary / 4
    return next((float(usual) for usual in _USUAL_SEQS if abs(requests / usual - 1) < 0.02), None)


def lower_pool(advice: Advice) -> Action | None:
    """A pool that was given by hand goes back to what the engine works out. None where it was not given."""
    names = ("kv_pool_tokens", "kv.pool_blocks_override", "kv.pool_bytes_override", "max_batch_total_tokens")
    told = advice.frame.facts
    # A metrics page tells the size of a pool that the server worked out by itself as well.
    given = [name for name in names if name in told and told[name].origin != "metrics"]
    present = next((value for name in given if (value := advice.number(name)) is not None), None)
    if present is None and advice.system != "tgi":
        return None
    return advice.action(
        "lower_kv_capacity",
        from_value=int(present) if present else None,
        to_value=int(present) // 2 if present and "kv_pool_tokens" in given else None,
        why=advice.say(
            "the pool was set by hand to more than is free beside the weights; left out, the engine works it out",
            "池的大小是手工设定的，超过权重之外的空闲显存；不设则由引擎自行计算",
        ),
        cost=advice.say("fewer requests run at once: concurrency is the loser", "同时运行的请求变少：受损的是并发"),
    )


def lower_context(advice: Advice) -> Action | None:
    """Half the context (llama.cpp, Ollama): the KV cache is reserved for all of it at start."""
    if advice.system not in ("llamacpp", "ollama"):
        return None
    known = present_of(advice, "max_model_len")
    present = known.value
    return advice.action(
        "lower_max_model_len",
        from_value=int(present) if present else None,
        to_value=(int(present) // 2 if present >= 512 else None) if present else _CONTEXT[advice.system],
        why=advice.say("the KV cache is reserved for the whole context at start", "启动时按整个上下文预留 KV 缓存")
        + known.note,
        cost=advice.say(
            "requests longer than this are refused: they are the losers", "更长的请求会被拒绝：受损的是长请求"
        ),
    )
