"""Info metrics (value 1, data in labels) turned into facts and into the gauges that rules read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from infradoc_rules.model import Fact, Value
from infradoc_rules.values import number

Origin = Literal["flag", "config", "log", "default", "api", "metrics", "file"]
_ORIGINS: frozenset[str] = frozenset({"flag", "config", "log", "default", "api", "metrics", "file"})


@dataclass(frozen=True, slots=True)
class InfoReading:
    """What one info metric says: facts, and samples (canonical name, labels, value) that follow from it."""

    facts: list[Fact] = field(default_factory=list)
    samples: list[tuple[str, dict[str, str], float]] = field(default_factory=list)


_LONGEST_NUMBER = 32  # characters; longer digits are no setting but junk, and overflow a float


def parse_value(text: str) -> Value | None:
    """A label's text as a typed value; None for "", "None" and "null" (labels are always text)."""
    if text in ("", "None", "null"):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if len(text) > _LONGEST_NUMBER:
        return text
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if math.isfinite(value) else text  # "nan" and "inf" are words here: nothing can be sized by them
    return text


def _number(labels: Mapping[str, str], name: str) -> float | None:
    return number(parse_value(labels.get(name, "")))


def _facts(labels: Mapping[str, str], names: Mapping[str, str]) -> list[Fact]:
    values = ((ours, parse_value(labels.get(theirs, ""))) for theirs, ours in names.items())
    return [Fact(ours, value, "metrics") for ours, value in values if value is not None]


def vllm_cache_config(labels: Mapping[str, str], _value: float) -> InfoReading:
    """vLLM's `cache_config_info`: every field of its CacheConfig as a label, "None" where it is unset.

    The pool in tokens is `kv_cache_size_tokens` from 0.27 on (right for hybrid models too), blocks x block size before.
    """
    engine = {"engine": labels["engine"]} if "engine" in labels else {}
    block_size, blocks = _number(labels, "block_size"), _number(labels, "num_gpu_blocks")
    tokens = _number(labels, "kv_cache_size_tokens")
    if tokens is None and block_size and blocks:
        tokens = blocks * block_size
    reading = InfoReading(
        facts=_facts(
            labels,
            {
                "block_size": "block_size",
                "gpu_memory_utilization": "gpu_memory_utilization",
                "enable_prefix_caching": "prefix_caching",
                "cache_dtype": "kv_cache_dtype",
                "num_gpu_blocks": "kv.pool_blocks",
                "num_gpu_blocks_override": "kv.pool_blocks_override",
                "kv_cache_memory_bytes": "kv.memory_bytes",
            },
        )
    )
    if tokens:
        reading.facts.append(Fact("kv_pool_tokens", int(tokens), "metrics"))
        reading.samples.append(("llm_kv_pool_tokens", dict(engine), tokens))
    if blocks:
        reading.samples.append(("llm_kv_pool_blocks", dict(engine), blocks))
    if block_size:
        reading.samples.append(("llm_kv_block_size_tokens", dict(engine), block_size))
    _add_bytes_per_token(reading, labels, tokens)
    shown = {
        "block_size": labels.get("block_size", ""),
        "num_blocks": labels.get("num_gpu_blocks", ""),
        "kv_cache_dtype": labels.get("cache_dtype", ""),
        "prefix_caching": labels.get("enable_prefix_caching", ""),
        "gpu_memory_utilization": labels.get("gpu_memory_utilization", ""),
    }
    reading.samples.append(("llm_cache_config_info", {**engine, **shown}, 1.0))
    return reading


def _add_bytes_per_token(reading: InfoReading, labels: Mapping[str, str], tokens: float | None) -> None:
    """Bytes of KV per token, where bytes and tokens describe one pool: an override changes only the tokens."""
    pool_bytes = _number(labels, "kv_cache_memory_bytes")
    if pool_bytes and tokens and _number(labels, "num_gpu_blocks_override") is None:
        reading.facts.append(Fact("hint.kv_bytes_per_token", round(pool_bytes / tokens), "metrics"))


def cache_config(labels: Mapping[str, str], _value: float) -> InfoReading:
    """`llm_cache_config_info` of the bundled engine."""
    names = {name: name for name in ("block_size", "kv_cache_dtype", "prefix_caching", "gpu_memory_utilization")}
    return InfoReading(facts=_facts(labels, {**names, "num_blocks": "kv.pool_blocks"}))


def model_info(labels: Mapping[str, str], _value: float) -> InfoReading:
    """`llm_model_info` of the bundled engine."""
    names = {"model": "model.name", "dtype": "dtype", "quantization": "quantization", "max_model_len": "max_model_len"}
    return InfoReading(facts=_facts(labels, names))


def config_value(labels: Mapping[str, str], value: float) -> InfoReading:
    """`config_value{knob, origin}`: a number of a knob."""
    if not labels.get("knob") or not math.isfinite(value):
        return InfoReading()
    number: Value = int(value) if value == int(value) else value
    return InfoReading(facts=[Fact(labels["knob"], number, _origin(labels))])


def config_info(labels: Mapping[str, str], _value: float) -> InfoReading:
    """`config_info{knob, value, origin}`: a knob whose value is no number."""
    value = parse_value(labels.get("value", ""))
    if not labels.get("knob") or value is None:
        return InfoReading()
    return InfoReading(facts=[Fact(labels["knob"], value, _origin(labels))])


def _origin(labels: Mapping[str, str]) -> Origin:
    origin = labels.get("origin", "metrics")
    return origin if origin in _ORIGINS else "metrics"  # type: ignore[return-value]


HANDLERS: Mapping[str, Callable[[Mapping[str, str], float], InfoReading]] = {
    "vllm_cache_config": vllm_cache_config,
    "cache_config": cache_config,
    "model_info": model_info,
    "config_value": config_value,
    "config_info": config_info,
}
