"""Starts that break off above the KV pool (sampler, graphs, images), or in the pool itself."""

from __future__ import annotations

import math

from infradoc_rules.advise.base import Advice, mebibytes
from infradoc_rules.advise.device import device_bytes, is_v1, older_than, present_share
from infradoc_rules.advise.startup_account import joined, requests_under
from infradoc_rules.model import Action, Event
from infradoc_rules.sizing.account import CONTEXT

_STEP = 0.05  # of the device, at least: a graph or a sampler asks for more after what was refused
_HEADROOM = 1.5  # over what the refused request lacked
_FURTHER = 0.1  # of the device: what an estimate of the graphs may add to the step
_V0_SEQS = 256  # vLLM's default of max_num_seqs outside the largest devices
_USUAL_SEQS = (128, 256, 512, 1024)  # max_num_seqs as engines set it by themselves
_PIXELS = 1_003_520  # 1280 x 28 x 28: about a thousand tokens an image for the Qwen VL family
_PREFILL_TOKENS = 1024
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
    target = None if present is None else math.floor((present - step) * 100 + 1e-6) / 100
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
            f"{mebibytes(want)} were asked for above the KV pool and {mebibytes(free or 0.0)} were free"
            if want
            else "what runs beside the KV pool needs room above the share",
            f"KV 池之外要 {mebibytes(want)}，空闲只有 {mebibytes(free or 0.0)}"
            if want
            else "KV 池之外的部分需要份额之上的空间",
            requests_under(advice, present, target),
        ),
        cost=advice.say(
            "a smaller KV pool: fewer requests run at once, so concurrency is the loser",
            "KV 池变小：同时运行的请求变少，受损的是并发",
        ),
    )


def _share_beside_graphs(advice: Advice, size: float | None) -> float:
    """The share that leaves room for all graphs, where they broke the start; 1 where their size is not known."""
    graphs = advice.number("account.graph_bytes")
    if advice.fact("oom.phase") != "graph_capture" or not graphs or not size:
        return 1.0
    return math.floor((size - graphs - CONTEXT) / size * 100) / 100


def lower_seqs_for_sampler(advice: Advice) -> Action:
    """As many dummy requests as fit beside the pool, in powers of two."""
    asked = advice.number("oom.dummy_requests") or advice.number("max_num_seqs") or _dummies(advice)
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
        ),
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


def lower_seqs_for_graphs(advice: Advice) -> Action | None:
    """Half the requests at once: fewer batch sizes are captured (vLLM V0 and SGLang capture up to this number)."""
    present = advice.number("max_num_seqs") or (_V0_SEQS if advice.system == "vllm" else None)
    target = int(present) // 2 if present and present >= 2 else None
    if present is not None and target is None:
        return None
    return advice.action(
        "lower_max_num_seqs",
        from_value=int(present) if present else None,
        to_value=target,
        why=advice.say("graphs are captured for batches up to this size", "图会捕获到这个批量为止"),
        cost=advice.say("concurrency is the loser", "受损的是并发"),
    )


def lower_seqs_for_images(advice: Advice) -> Action | None:
    """V0 profiles one largest image for each possible request. None for V1, which has a budget of its own for them."""
    if advice.system == "vllm" and is_v1(advice):
        return None
    present = advice.number("max_num_seqs")
    target = 16 if (present or _V0_SEQS) > 16 else max(int(present or 2) // 2, 1)
    return advice.action(
        "lower_max_num_seqs",
        from_value=int(present) if present else None,
        to_value=target,
        why=advice.say(
            "the profile encodes one largest image for each request that may run at once",
            "启动测量会为每个可同时运行的请求编码一张最大的图片",
        ),
        cost=advice.say("concurrency is the loser", "受损的是并发"),
    )


def disable_cuda_graphs(advice: Advice) -> Action | None:
    """No graphs at all. None where they are off already."""
    if advice.fact("enforce_eager") is True or advice.system in ("llamacpp", "ollama", "tgi", "trtllm"):
        return None
    return advice.action(
        "disable_cuda_graphs",
        from_value=False,
        to_value=True,
        why=advice.say("without graphs nothing has to be captured", "不用图就不需要捕获"),
        cost=advice.say(
            "decode gets slower, small models and small batches most: their callers are the losers",
            "decode 变慢，小模型和小批量最明显：受损的是其调用方",
        ),
    )


def lower_graph_batch(advice: Advice) -> Action | None:
    """Fewer captured sizes."""
    if advice.fact("enforce_eager") is True or advice.system in ("llamacpp", "ollama", "lmdeploy"):
        return None
    present = advice.number("cuda_graph_max_bs")
    target = max(int(present) // 2, 1) if present else 64
    flag = None
    if advice.system == "vllm" and older_than(advice, 0, 11, 1):
        if older_than(advice, 0, 8, 5):
            return None  # no flag of its own yet: the sizes follow max_num_seqs
        flag = f"--cuda-graph-sizes {target}"
    return advice.action(
        "lower_cuda_graph_max_bs",
        from_value=int(present) if present else None,
        to_value=target,
        flag=flag,
        why=advice.say("each captured size takes memory of its own", "每个捕获的批量都要占用显存"),
        cost=advice.say("larger batches run without graphs: throughput is the loser", "更大的批量不走图：受损的是吞吐"),
    )


def disable_prefill_graphs(advice: Advice) -> Action | None:
    """Graphs for decode alone (SGLang), where prefill graphs were being captured."""
    captures = [event for event in advice.frame.events if event.name == "graph_capture"]
    named = any("prefill" in str(event.text or "").lower() or _is_prefill(event) for event in captures)
    if advice.system != "sglang" or not named:
        return None
    return advice.action(
        "disable_prefill_graphs",
        to_value=False,
        flag="--disable-prefill-cuda-graph",
        why=advice.say("graphs of prefill chunks take the most memory", "prefill 分块的图占用显存最多"),
        cost=advice.say("short prompts are the losers: their prefill gets slower", "受损的是短提示：prefill 变慢"),
    )


def _is_prefill(event: Event) -> bool:
    """A decode batch has no thousands of tokens."""
    largest = event.fields.get("largest_batch")
    return isinstance(largest, int) and largest >= _PREFILL_TOKENS


def lower_mm_limit(advice: Advice) -> Action:
    """One item a prompt, or none of a kind that nobody sends."""
    kinds = [e.fields.get("modality") for e in advice.frame.events if e.name == "mm_profile"]
    kind = next((str(kind) for kind in reversed(kinds) if kind in ("image", "video", "audio")), None)
    target = {"video": '{"image": 1, "video": 0}', "audio": '{"audio": 1}'}.get(kind or "", '{"image": 1}')
    old = advice.system == "vllm" and older_than(advice, 0, 9, 0)
    value = target.strip("{}").replace('"', "").replace(": ", "=").replace(" ", "") if old else f"'{target}'"
    return advice.action(
        "lower_mm_limit",
        to_value=value,
        why=advice.say(
            "the profile runs as many of the largest items as a prompt may hold",
            "启动测量会按一个提示允许的数量运行最大的条目",
        ),
        cost=advice.say(
            "prompts with more items are refused: they are the losers", "条目更多的提示会被拒绝：受损的是这类调用方"
        ),
    )


def lower_mm_max_pixels(advice: Advice) -> Action:
    """Images are scaled down before they reach the encoder."""
    flag = f"--mm-processor-kwargs '{{\"max_pixels\": {_PIXELS}}}'" if advice.system == "vllm" else None
    return advice.action(
        "lower_mm_max_pixels",
        to_value=_PIXELS,
        flag=flag,
        why=advice.say(
            "the encoder's memory grows with the pixels of the largest image", "编码器的显存随最大图片的像素数增长"
        ),
        cost=advice.say(
            "detail in large images is lost: callers who need it are the losers",
            "大图的细节会丢失：受损的是依赖细节的调用方",
        ),
    )


def lower_pool(advice: Advice) -> Action | None:
    """A pool that was given by hand goes back to what the engine works out. None where it was not given."""
    names = ("kv_pool_tokens", "kv.pool_blocks_override", "kv.pool_bytes_override", "max_batch_total_tokens")
    present = next((value for name in names if (value := advice.number(name)) is not None), None)
    if present is None and advice.system != "tgi":
        return None
    return advice.action(
        "lower_kv_capacity",
        from_value=int(present) if present else None,
        to_value=int(present) // 2 if present and advice.number("kv_pool_tokens") else None,
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
    present = advice.number("max_model_len")
    return advice.action(
        "lower_max_model_len",
        from_value=int(present) if present else None,
        to_value=int(present) // 2 if present and present >= 512 else None,
        why=advice.say("the KV cache is reserved for the whole context at start", "启动时按整个上下文预留 KV 缓存"),
        cost=advice.say(
            "requests longer than this are refused: they are the losers", "更长的请求会被拒绝：受损的是长请求"
        ),
    )
