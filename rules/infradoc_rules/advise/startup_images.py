"""Starts that break off while the largest images or videos are tried."""

from __future__ import annotations

from infradoc_rules.advise.base import Advice
from infradoc_rules.advise.device import is_v1, older_than
from infradoc_rules.advise.device import present as present_of
from infradoc_rules.model import Action

_V0_SEQS = 256  # vLLM's default of max_num_seqs outside the largest devices
_PIXELS = 1_003_520  # 1280 x 28 x 28: about a thousand tokens an image for the Qwen VL family


def lower_seqs_for_images(advice: Advice) -> Action | None:
    """V0 profiles one largest image for each possible request. None for V1, which has a budget of its own for them."""
    if advice.system == "vllm" and is_v1(advice):
        return None
    known = present_of(advice, "max_num_seqs")
    present = known.value
    target = 16 if (present or _V0_SEQS) > 16 else max(int(present or 2) // 2, 1)
    return advice.action(
        "lower_max_num_seqs",
        from_value=int(present) if present else None,
        to_value=target,
        why=advice.say(
            "the profile encodes one largest image for each request that may run at once",
            "启动测量会为每个可同时运行的请求编码一张最大的图片",
        )
        + known.note,
        cost=advice.say("concurrency is the loser", "受损的是并发"),
    )


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
