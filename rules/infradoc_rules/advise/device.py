"""What a start-up sizing needs to know: the engine's version, its memory share, the device's size."""

from __future__ import annotations

import re
from dataclasses import dataclass

from infradoc_rules.advise.base import Advice
from infradoc_rules.defaults import Host, default_of
from infradoc_rules.units import GIB

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
_USUAL_SHARE = {"vllm": 0.9, "lmdeploy": 0.8}  # where the version is not known: most of those that people run
LARGEST_SHARE = 0.95  # of the device; above it the CUDA context and fragmentation have no room

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Present:
    """A knob's number in force; `note` says, for the end of a sentence, that it is a default and not set by anybody."""

    value: float | None
    note: str = ""


def present(advice: Advice, knob: str) -> Present:
    """What is set, or else what this version takes by itself on this device."""
    said = advice.number(knob)
    value = default(advice, knob) if said is None else None
    if value is None:
        return Present(said)
    release = advice.fact("target.version")
    en = f"; {value:g} is the default{f' of version {release}' if release else ''}"
    return Present(value, advice.say(en, f"；{value:g} 是{f'版本 {release} 的' if release else ''}默认值"))


def default(advice: Advice, knob: str) -> float | None:
    """The number that this version takes for a knob by itself; None where it works it out, or that is not known."""
    size = device_bytes(advice)
    if size is not None and advice.system == "ollama":
        size *= advice.number("gpu.count") or 1  # its context goes by the memory of all devices
    name = advice.fact("gpu.name")
    split = int(advice.number("tensor_parallel_size") or 1)
    host = Host(None if size is None else size / GIB, None if name is None else str(name), split)
    value = default_of(advice.running, knob, host)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def version(advice: Advice) -> Version | None:
    """The engine's version as numbers; None when it is not known."""
    found = _VERSION.search(str(advice.fact("target.version") or ""))
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def older_than(advice: Advice, *numbers: int) -> bool:
    """Whether the version is known and below `numbers`."""
    known = version(advice)
    return known is not None and known < tuple(numbers)


def is_v1(advice: Advice) -> bool:
    """Whether this is vLLM's V1 engine: by its own word, else by version (the default since 0.8.0)."""
    said = advice.fact("target.engine_api")
    if said in ("V0", "V1"):
        return said == "V1"
    known = version(advice)
    return advice.system == "vllm" and (known is None or known >= (0, 8, 0))


def present_share(advice: Advice) -> float | None:
    """The memory share: as set, as the engine printed it, or its default; None where the engine works it out itself."""
    said = advice.number("gpu_memory_utilization")
    for event, field in (("memory_below_request", "ratio"), ("memory_account", "share")):
        said = advice.last(event, field) if said is None else said
    if said is not None:
        return said
    return default(advice, "gpu_memory_utilization") or _USUAL_SHARE.get(advice.system or "")


def share_note(advice: Advice) -> str:
    """Says, for the end of a sentence, that the share is a default of this version; empty where it was set."""
    known = present(advice, "gpu_memory_utilization")
    if advice.running.device == "cpu":
        return ""  # the pool is sized by a variable there
    return known.note if known.value == present_share(advice) else ""


def device_bytes(advice: Advice) -> float | None:
    """Memory of one device, from the log's own figures or a snapshot beside it."""
    for event in ("cuda_oom", "memory_below_request", "memory_account"):
        size = advice.last(event, "total_bytes")
        if size:
            return size
    return advice.number("gpu.memory_bytes")


def others_share(advice: Advice) -> float:
    """Share of the device that other processes were seen to hold; 0 where nothing was seen."""
    return advice.number("gpu.other_share") or 0.0


def counts_foreign_memory(advice: Advice) -> bool:
    """Whether this version takes what others hold for its own: vLLM before 0.3.1, and V1 before 0.9.1.

    Sources: vllm-project/vllm pull requests 2863 (V0), 18974 and 19312 (V1).
    """
    if advice.system != "vllm":
        return False
    known = version(advice)
    if known is None:
        # Later versions check at start that their share is free, so they never get as far as a KV cache of nothing.
        return advice.fact("gpu.shared") is True and advice.fact("kv.verdict") in ("none", "too_small")
    return known < (0, 3, 1) or (is_v1(advice) and known < (0, 9, 1))
