"""Starts that break off because something else holds the device's memory."""

from __future__ import annotations

import math

from infradoc_rules.advise.base import Advice
from infradoc_rules.advise.device import counts_foreign_memory, older_than, others_share, present_share
from infradoc_rules.advise.memory import lower_gpu_memory_utilization, stop_other_process
from infradoc_rules.advise.startup import raise_share_for_kv
from infradoc_rules.advise.startup_account import joined, requests_under
from infradoc_rules.model import Action
from infradoc_rules.units import size_text

_SMALL_TENANT = 0.25  # of the device: a desktop or a small model, which a smaller share can live beside
_MARGIN = 0.01  # of the device, below what is free: the check compares with rounded numbers
_NO_SHARE = ("llamacpp", "ollama", "infradoc")  # nothing is derived from a share there


def share_over_foreign(advice: Advice) -> Action | None:
    """A share that includes what others hold, for the versions that count it as their own."""
    short = advice.fact("kv.verdict") in ("none", "too_small")
    return raise_share_for_kv(advice) if short and counts_foreign_memory(advice) else None


def stop_seen_process(advice: Advice) -> Action | None:
    """Live: the process leaves the device. After a failed start the advice with its own figures stands instead."""
    return None if advice.fact("gpu.shared") is not None else stop_other_process(advice)


def lower_seen_share(advice: Advice) -> Action | None:
    """Live: a share that the others leave room for."""
    return None if advice.fact("gpu.shared") is not None else lower_gpu_memory_utilization(advice)


def free_device_first(advice: Advice) -> Action | None:
    """Others leave the device, where they hold too much of it to live beside."""
    big = others_share(advice) >= _SMALL_TENANT
    return _free_device(advice) if big and advice.fact("gpu.shared") is not None else None


def free_device_after(advice: Advice) -> Action | None:
    """The same for small tenants, after the share that lives beside them."""
    small = others_share(advice) < _SMALL_TENANT
    return _free_device(advice) if small and advice.fact("gpu.shared") is not None else None


def _free_device(advice: Advice) -> Action:
    held = advice.number("gpu.other_bytes")
    return advice.action(
        "stop_other_process",
        why=advice.say(
            f"{size_text(held)} of the device are taken by something else"
            if held
            else "something else takes memory of the device",
            f"设备上有 {size_text(held)} 被其他程序占用" if held else "设备显存被其他程序占用",
        ),
        cost=advice.say("whoever uses that program is the loser", "受损的是使用该程序的人"),
    )


def fit_share_to_free(advice: Advice) -> Action | None:
    """The largest share that others leave. None where the version counts their memory as its own."""
    present = present_share(advice)
    if advice.system in _NO_SHARE or counts_foreign_memory(advice) or not others_share(advice):
        return None
    free = 1.0 - others_share(advice)
    target = math.floor((free - _MARGIN) * 100 + 1e-6) / 100
    if target <= 0.05 or (present is not None and target >= present):
        return None
    return advice.action(
        "lower_gpu_memory_utilization",
        from_value=present,
        to_value=target,
        why=joined(
            advice,
            f"{free:.0%} of the device is free, and the share counts from the whole of it",
            f"设备只有 {free:.0%} 空闲，而份额按整个设备计算",
            requests_under(advice, present, target),
        ),
        cost=advice.say(
            "a smaller KV cache: concurrency and the longest request are the losers",
            "KV 缓存变小：受损的是并发和最长请求",
        ),
    )


def upgrade_for_sharing(advice: Advice) -> Action | None:
    """A version that tells its own memory from that of others."""
    if not counts_foreign_memory(advice):
        return None
    fixed = "0.3.1" if older_than(advice, 0, 3, 1) else "0.9.1"
    return advice.action(
        "upgrade_engine",
        from_value=advice.fact("target.version"),
        to_value=f">={fixed}",
        flag=f"vllm>={fixed}",
        why=advice.say(
            f"before {fixed} the profile takes what other processes hold for its own",
            f"{fixed} 之前的版本在测量时把其他进程占用的显存当成自己的",
        ),
        cost=advice.say(
            "flags and defaults change between versions: whoever has to check them is the loser",
            "不同版本的参数和默认值有变化：运维方需要核对",
        ),
    )


def start_in_sequence(advice: Advice) -> Action | None:
    """One server after another, where memory moved while this one was measuring."""
    if not any(event.name == "memory_moved" for event in advice.frame.events):
        return None
    return advice.action(
        "start_in_sequence",
        to_value="sequential",
        why=advice.say(
            "free memory changed while the engine measured itself: something else came or went",
            "引擎测量期间空闲显存发生变化：有其他程序启动或退出",
        ),
        cost=advice.say(
            "starting all servers takes longer: whoever waits for them is the loser",
            "全部服务启动所需时间变长：受损的是等待启动的人",
        ),
    )
