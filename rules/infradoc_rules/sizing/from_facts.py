"""The model and the launch that the facts of a post-mortem name. Pure, but for the packaged tables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from infradoc_rules.model import Fact, Value
from infradoc_rules.sizing.account import account
from infradoc_rules.sizing.behaviour import Version
from infradoc_rules.sizing.config import model_of
from infradoc_rules.sizing.dtypes import BY_CHECKPOINT, DTYPES, KERNELS, KV_DTYPES, QUANTIZATIONS
from infradoc_rules.sizing.gpus import Gpu, gpu_named
from infradoc_rules.sizing.known import known_model
from infradoc_rules.sizing.model import Model, SizingError
from infradoc_rules.sizing.setting import Setting
from infradoc_rules.units import GIB

CONFIG = "model.config"  # a config.json beside the log, as JSON text
_NAMES = ("model_checkpoint", "model.name", "served_model_name")
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
_ABSENT = frozenset({"", "none", "null", "auto", "false"})
_NEAR = 0.05  # of the memory: what nvidia-smi shows and CUDA gives differ by less
_ROUNDS = 3
_VISIBLE = 0.992  # of what nvidia-smi shows, CUDA gives programs


def model_in(facts: Mapping[str, Fact]) -> Model | None:
    """The model of a configuration beside the log, else the well-known one that the launch or the log names.

    None when it is not known, or is stored or shared in a way whose size is not known.
    """
    model = _configured(facts) or next((found for name in _NAMES if (found := known_model(_text(facts, name)))), None)
    if model is None or _loosely_stored(facts):
        return None
    # With data parallelism, experts may be shared by all replicas.
    spread = model.experts is not None and (_count(facts, "data_parallel_size") or 1) > 1
    return None if spread else model


def _configured(facts: Mapping[str, Fact]) -> Model | None:
    try:
        raw = json.loads(_text(facts, CONFIG) or "null")
        return model_of(raw, _text(facts, "model.name") or "model") if isinstance(raw, dict) else None
    except (ValueError, SizingError):  # damaged, or no decoder's
        return None


def _loosely_stored(facts: Mapping[str, Fact]) -> bool:
    method = _text(facts, "quantization").lower()
    named = quantization_of_launch(method)
    return method not in _ABSENT and method not in BY_CHECKPOINT and named is None


def quantization_of_launch(method: str) -> str | None:
    """Our name of what a launch or a log calls the quantization; None for none, and for what says no width."""
    method = KERNELS.get(method, method)
    return method if method in QUANTIZATIONS else None


def setting_in(facts: Mapping[str, Fact], gpu: Gpu, fraction: float | None) -> Setting:
    """The launch on `gpu`: flags and what the log says of them."""
    dtype = next((text for name in ("model.dtype", "dtype") if (text := _text(facts, name).lower()) in DTYPES), None)
    kv_dtype = _text(facts, "kv_cache_dtype").lower()
    return Setting(
        gpu=gpu,
        tensor_parallel=_count(facts, "tensor_parallel_size") or 1,
        pipeline_parallel=_count(facts, "pipeline_parallel_size") or 1,
        max_model_len=_count(facts, "kv.asked_len") or _count(facts, "max_model_len"),
        dtype=dtype,
        quantization=quantization_of_launch(_text(facts, "quantization").lower()),
        kv_dtype=kv_dtype if kv_dtype in KV_DTYPES else None,
        fraction=fraction,
        max_num_seqs=_count(facts, "max_num_seqs"),
        max_num_batched_tokens=_count(facts, "max_num_batched_tokens"),
        eager=_value(facts, "enforce_eager") is True,
        version=version_in(facts),
    )


def version_in(facts: Mapping[str, Fact]) -> Version | None:
    """The engine's version; the V0 engine of a later version counts as the last that had no other."""
    found = _VERSION.search(_text(facts, "target.version"))
    version = tuple(int(part or 0) for part in found.groups()) if found else None
    if _text(facts, "target.engine_api") == "V0" and (version is None or version >= (0, 8)):
        return (0, 7, 99)
    return version


def gpu_in(facts: Mapping[str, Fact], seen_bytes: float | None) -> Gpu | None:
    """The device: its memory as the engine saw it (`seen_bytes`), else by name, else as nvidia-smi shows it."""
    named = gpu_named(_text(facts, "gpu.name"))
    shown = _value(facts, "gpu.memory_bytes")
    size = float(shown) if isinstance(shown, int | float) and 0 < shown < 1 << 50 else None
    if seen_bytes:
        return _device(named, seen_bytes)
    if named is not None and (size is None or abs(size / named.memory_bytes - 1) < _NEAR):
        return named
    return None if size is None else _device(named, size * _VISIBLE)


def implied_gpu(model: Model, setting: Setting, weights: float, kv: float) -> Gpu:
    """The device whose share the printed weights and KV cache fill together with what is computed of the rest.

    For starts whose log says nothing of the device; the parts that are computed are a few percent of it.
    """
    size = 24 * GIB
    for _ in range(_ROUNDS):  # larger devices take larger steps by default
        rest = account(model, replace(setting, gpu=Gpu("GPU", size, None, 0.0)))
        inside = rest.graphs if rest.graphs_inside else 0
        size = int((weights + kv + rest.activation + rest.engine + inside) / setting.share)
    return Gpu("GPU", size, None, 0.0)


def _device(named: Gpu | None, size: float) -> Gpu:
    if named is None:
        return Gpu("GPU", int(size), None, 0.0)
    return Gpu(named.name, int(size), named.capability, named.bandwidth)


def _value(facts: Mapping[str, Fact], name: str) -> Value | None:
    return facts[name].value if name in facts else None


def _text(facts: Mapping[str, Fact], name: str) -> str:
    value = _value(facts, name)
    return value if isinstance(value, str) else ""


def _count(facts: Mapping[str, Fact], name: str) -> int | None:
    value = _value(facts, name)
    return (
        int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1 << 31 else None
    )
