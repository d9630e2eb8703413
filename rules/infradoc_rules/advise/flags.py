"""The flag of an action, as the target's engine and version spell it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from infradoc_rules.actions import ACTIONS, ActionSpec
from infradoc_rules.knobs import knob_table
from infradoc_rules.model import Action, Fact, Value
from infradoc_rules.units import GIB
from infradoc_rules.versions import Running

if TYPE_CHECKING:  # base words its actions with this module
    from infradoc_rules.advise.base import Advice

_BLOCKS = {"--num-gpu-blocks-override": 16, "num_gpu_blocks": 64}  # tokens of a block where none is named
_SWITCH = {"enable": True, "disable": False}
_DIRECTIONS = {
    "increase": ("<more than now>", "<比现在大>"),
    "decrease": ("<less than now>", "<比现在小>"),
    "set": ("<value>", "<取值>"),
}
_BARE = re.compile(r"--?[A-Za-z][\w-]*")
_CPU_SPACE = "VLLM_CPU_KVCACHE_SPACE"
_CPU_FACTS = (_CPU_SPACE, f"env.{_CPU_SPACE}")
_ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "tgi": "TGI", "lmdeploy": "LMDeploy", "llamacpp": "llama.cpp"}
_CPU_FREE = 0.8  # of what is free may go to the pool
_CPU_ROOM = 1.1  # over the longest request, where its need is what the space has to hold


def on_cpu(facts: Mapping[str, Fact]) -> bool:
    """Whether the engine computes on CPUs: by its log, its start command's variables, or its build's name."""
    device, version = facts.get("target.device"), facts.get("target.version")
    if device is not None:
        return device.value == "cpu"
    return any(name in facts for name in _CPU_FACTS) or (version is not None and "cpu" in str(version.value))


def knob_flag(advice: Advice, spec: ActionSpec, value: Value | None) -> str | None:
    """The knob's own flag with its value; None for a knob that this engine or version does not have."""
    knob = knob_table()[spec.knob]
    own = knob.engine is not None if advice.system == "infradoc" else bool(_names(advice, spec.knob))
    if not own:
        return None
    spelling = knob_table().spelling(advice.system, spec.knob, advice.running)
    if spelling == _CPU_SPACE or (spelling is None and _has_cpu_space(advice, spec.knob)):
        return f"{_CPU_SPACE}={_cpu_space(advice, raising=spec.change == 'increase') or '<GiB>'}"
    if spelling in _BLOCKS and isinstance(value, int | float):
        value = math.ceil(value / (advice.number("block_size") or _BLOCKS[spelling]))
    if value is None and spelling is not None and _is_flag(spelling) and knob.values.startswith("enable | disable"):
        value = _SWITCH.get(spec.change)
    return knob_table().flag(advice.system, spec.knob, value, advice.running)


def worded_flag(advice: Advice, spec: ActionSpec, value: Value | None, flag: str) -> str | None:
    """A flag that an adviser worded itself, where the version has it, else the knob's own as that version spells it.

    What the start command sets already is surely there, unless the version is known to have dropped it.
    """
    given = advice.frame.facts.get(spec.knob)
    if given is not None and given.origin == "flag" and not advice.running.ended(flag):
        return flag
    return flag if advice.running.takes(flag) else knob_flag(advice, spec, value)


def with_direction(advice: Advice, spec: ActionSpec, flag: str | None, value: Value | None) -> str | None:
    """A flag that takes a value is refused alone: where none could be computed, its direction in words stands there."""
    if flag is None or _BARE.fullmatch(flag) is None or isinstance(value, bool):
        return flag
    if knob_table()[spec.knob].values.startswith("enable | disable"):
        return flag
    if spec.knob == "model_checkpoint":
        return f"{flag} {advice.say('<name or path>', '<名称或路径>')}"
    words = _DIRECTIONS.get(spec.change)
    return flag if words is None or value is not None else f"{flag} {advice.say(*words)}"


def shown_values(
    advice: Advice, spec: ActionSpec, flag: str | None, before: Value | None, after: Value | None
) -> tuple[Value | None, Value | None]:
    """The values before and after; GiB instead of a share where the flag sizes the pool of an engine on CPUs."""
    if spec.knob != "gpu_memory_utilization" or flag is None or not flag.startswith(f"{_CPU_SPACE}="):
        return before, after
    given, size = _cpu_given(advice), flag.partition("=")[2]
    return f"{given:g} GiB" if given else None, f"{size} GiB" if size.isdigit() else None


def lacks(advice: Advice, action: Action) -> bool:
    """Whether the engine has a name for the action's knob, but this version or device has none of them."""
    names = _names(advice, action.knob)
    return action.flag is None and bool(names) and advice.running.best(names) is None


def from_later_version(advice: Advice, action: Action) -> Action | None:
    """An action whose knob comes with a later version, saying so; None where none is known to have it."""
    since = advice.running.later(_names(advice, action.knob))
    if since is None or advice.system is None:
        return None
    spelled = knob_table().flag(advice.system, action.knob, action.to_value, Running(advice.system, since))
    flag = with_direction(advice, ACTIONS[action.name], spelled, action.to_value) if action.name else spelled
    engine = _ENGINES.get(advice.system, advice.system)
    why = advice.say(f"from {engine} {since} on: {action.why}", f"自 {engine} {since} 起：{action.why}")
    return replace(action, flag=f"{advice.system}>={since}, {flag}", why=why)


def _names(advice: Advice, knob: str) -> Sequence[str]:
    return knob_table()[knob].spellings.get(advice.system or "", ())


def _is_flag(spelling: str) -> bool:
    bare = spelling.removeprefix("not ")
    return bare.startswith("-") or bare.isupper()


def _has_cpu_space(advice: Advice, knob: str) -> bool:
    """vLLM on CPUs sizes its pool by that variable; most versions read no share of memory there."""
    sized = knob == "gpu_memory_utilization" and advice.system == "vllm" and advice.running.device == "cpu"
    return sized and advice.running.has(_CPU_SPACE) is not False


def _cpu_space(advice: Advice, raising: bool) -> int | None:
    """GiB for the pool: what the longest request needs, else twice or half of the present. None: neither is known."""
    present = _cpu_given(advice) or (advice.number("kv.available_bytes") or 0.0) / GIB
    needed = (advice.number("kv.needed_bytes") or 0.0) / GIB
    if raising and needed:
        return max(math.ceil(needed * _CPU_ROOM), math.floor(present) + 1)
    if present <= 0:
        free = advice.number("oom.free_bytes")
        return max(math.floor(free * _CPU_FREE / GIB), 1) if free and not raising else None
    return math.ceil(present * 2) if raising else max(math.floor(present / 2), 1)


def _cpu_given(advice: Advice) -> float | None:
    """GiB that the variable names; None where it is not known to be set."""
    return next((number for name in _CPU_FACTS if (number := advice.number(name))), None)
