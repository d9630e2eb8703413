"""The launch command of a server as facts: each flag that names a knob, under the canonical name."""

from __future__ import annotations

import re
import shlex

from infradoc_rules.knobs import knob_table
from infradoc_rules.maps.info import parse_value
from infradoc_rules.model import Fact, Value

_SYSTEMS = (
    ("vllm", re.compile(r"\bvllm\s+serve\b|vllm\.entrypoints|\bvllm/vllm-openai\b")),
    ("sglang", re.compile(r"\bsglang\b")),
    ("tgi", re.compile(r"\btext-generation-(?:launcher|inference)\b")),
    ("llamacpp", re.compile(r"\bllama-server\b|\bllama\.cpp\b")),
    ("lmdeploy", re.compile(r"\blmdeploy\b")),
    ("trtllm", re.compile(r"\btrtllm-serve\b")),
    ("ollama", re.compile(r"\bollama\b")),
    ("infradoc", re.compile(r"\binfradoc(?:_engine)?\s+serve\b")),
)
_ASSIGNMENT = re.compile(r"^[A-Z_][A-Z0-9_]*=")
# Spellings that count a knob in another unit than the canonical one: kept apart under a name of their own ...
_OTHER_UNIT = {
    ("vllm", "--num-gpu-blocks-override"): "kv.pool_blocks_override",
    ("vllm", "--kv-cache-memory-bytes"): "kv.pool_bytes_override",
    ("vllm", "--kv-cache-memory"): "kv.pool_bytes_override",
    ("lmdeploy", "num_gpu_blocks"): "kv.pool_blocks_override",
}
# ... or scaled where the factor is fixed.
_GIB = frozenset({"--swap-space", "--cpu-offload-gb", "--kv-offloading-size", "--hicache-size"})
_MIB = frozenset({"--cache-ram", "--fit-target"})


def system_of(command: str) -> str | None:
    """The engine that a launch command starts; None when it is none we know."""
    return next((system for system, pattern in _SYSTEMS if pattern.search(command)), None)


def launch_facts(command: str, source: str = "launch.txt") -> list[Fact]:
    """Facts of a launch command: the system, and the value of every flag or variable that is a known knob."""
    system = system_of(command)
    words = split_command(command)
    facts = [Fact("target.system", system, "flag", source)] if system else []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if _ASSIGNMENT.match(word):
            name, _, text = word.partition("=")
            facts += _fact(system, name, text, source)
        elif word.startswith("-") and len(word) > 1:
            name, equals, text = word.partition("=")
            if not equals and at < len(words) and _is_value(words[at]):
                text = words[at]
                at += 1
            facts += _fact(system, name, text, source)
    return facts


def split_command(command: str) -> list[str]:
    """Words of a command over several lines with continuations; comments and unclosed quotes are forgiven."""
    text = command.replace("\\\n", " ")
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def _is_value(word: str) -> bool:
    return not word.startswith("-") or re.fullmatch(r"-\d+(\.\d+)?", word) is not None


def _fact(system: str | None, name: str, text: str, source: str) -> list[Fact]:
    known = knob_table().resolve(system, name)
    if known is None and name.startswith("--no-"):
        known = knob_table().resolve(system, "--" + name.removeprefix("--no-"))
        known = (known[0], not known[1]) if known else None
    if known is None:
        return []
    knob, negated = known
    value = typed(text)
    if isinstance(value, bool) or text == "":
        value = (value if isinstance(value, bool) and text else True) != negated
    knob = _OTHER_UNIT.get((system or "", name), knob)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = value * (1 << 30) if name in _GIB else value * (1 << 20) if name in _MIB else value
    return [Fact(knob, value, "flag", source)]


def typed(text: str) -> Value:
    """A flag's text as bool, int, float or text; "None" and "" stay texts."""
    value = parse_value(text)
    return text if value is None else value
