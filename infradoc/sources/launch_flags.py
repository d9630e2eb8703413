"""One flag, variable or config key with its value, as facts under canonical names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from infradoc_rules.knobs import knob_table
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.maps.info import parse_value
from infradoc_rules.model import Fact, Value

# Spellings that count a knob in another unit than the canonical one, or that limit a part of what it limits: kept
# apart under a name of their own ...
_OTHER_NAME: Mapping[tuple[str, str], str] = {
    ("vllm", "num-gpu-blocks-override"): "kv.pool_blocks_override",
    ("vllm", "kv-cache-memory-bytes"): "kv.pool_bytes_override",
    ("vllm", "kv-cache-memory"): "kv.pool_bytes_override",
    ("vllm", "vllm-cpu-kvcache-space"): "kv.pool_bytes_override",
    ("lmdeploy", "num-gpu-blocks"): "kv.pool_blocks_override",
    ("llamacpp", "ubatch-size"): "llamacpp.n_ubatch",
    ("llamacpp", "ub"): "llamacpp.n_ubatch",
    ("llamacpp", "split-mode"): "llamacpp.split_mode",
    ("llamacpp", "sm"): "llamacpp.split_mode",
    ("sglang", "max-prefill-tokens"): "sglang.max_prefill_tokens",
    ("sglang", "hicache-ratio"): "sglang.hicache_ratio",
}
# ... or scaled where the factor is fixed.
_UNITS: Mapping[str, int] = {
    **dict.fromkeys(("swap-space", "vllm-cpu-kvcache-space", "cpu-offload-gb", "kv-offloading-size"), 1 << 30),
    **dict.fromkeys(("cache-ram", "fit-target"), 1 << 20),
    "hicache-size": 10**9,
}
_SWITCH = "enable | disable"
_ON = frozenset({"1", "true", "on", "yes", "enabled"})
_OFF = frozenset({"0", "false", "off", "no", "disabled"})
_TOKENS = lazy(r"(\d+(?:\.\d+)?)([kKmMgG])i?")  # vLLM: 32k is 32,000 and 32K is 32,768
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9}
# "tokens" are mostly counted ones: --max-num-batched-tokens.
_SECRET = lazy(
    r"(?:^|[-_.])(?:(?:api[-_]?)?keys?|token|(?:api|auth|access|hf|hub|bearer)[-_]?tokens|passw(?:or)?ds?|secrets?"
    r"|credentials?|auths?)$",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Whether a flag or variable of that name holds a secret: its value never becomes a fact."""
    return _SECRET.search(name) is not None


def typed(text: str) -> Value:
    """A flag's text as bool, int, float or text; "None" and "" stay texts."""
    value = parse_value(text)
    return text if value is None else value


def flag_facts(system: str | None, name: str, text: str, source: str | None, origin: str = "flag") -> list[Fact]:
    """Facts of one flag (`--name text`), variable or config key; none when it is no knob of that engine.

    A switch (`--enable-x`, `--no-x`, `X_DISABLE=1`) becomes the canonical knob as bool, the right way round.
    """
    if is_secret(name):
        return []
    known = _resolve(system, name)
    if known is None:
        return []
    knob, negated = known
    spelling = name.lstrip("-").replace("_", "-").lower()
    knob = _OTHER_NAME.get((system or "", spelling), knob)
    read = _SPECIAL.get(knob)
    value = read(text) if read is not None else _value(knob, spelling, text, negated)
    return [] if value is None else [_fact(knob, value, origin, source)]


def _fact(name: str, value: Value, origin: str, source: str | None) -> Fact:
    return Fact(name, value, "config" if origin == "config" else "default" if origin == "default" else "flag", source)


def _resolve(system: str | None, name: str) -> tuple[str, bool] | None:
    table = knob_table()
    known = table.resolve(system, name)
    bare = name.lstrip("-").replace("_", "-").lower()
    if known is None and bare.startswith("no-"):
        known = table.resolve(system, bare.removeprefix("no-"))
        known = (known[0], not known[1]) if known else None
    return known


def is_switch(name: str) -> bool:
    """Whether a flag of that name takes no value, as its name tells."""
    return name.lstrip("-").startswith(
        ("enable-", "disable-", "no-", "use-", "trust-remote", "skip-", "log-", "calculate-")
    )


def takes_value(system: str | None, name: str, following: str) -> bool:
    """Whether the word after a flag is its value: not after a switch, unless it is on, off, true, false."""
    if following.lower() in _ON | _OFF:
        return True
    known = _resolve(system, name)
    switch = known is not None and known[0] in knob_table() and knob_table()[known[0]].values.startswith(_SWITCH)
    choice = (known is not None and known[0] in _SPECIAL) or following.lower() == "auto"
    return not (is_switch(name) or (switch and not choice))


def _value(knob: str, spelling: str, text: str, negated: bool) -> Value | None:
    value = typed(text)
    if knob in knob_table() and knob_table()[knob].values.startswith(_SWITCH):
        word = text.strip().lower()
        if word in _ON or word in _OFF or word == "":
            return (word not in _OFF) != negated
        return (not negated) if is_switch(spelling) else None if negated else value
    if isinstance(value, bool) or text == "":
        return (value if isinstance(value, bool) and text else True) != negated
    if isinstance(value, str):
        found = _TOKENS.fullmatch(value)
        if found is not None and knob_unit(knob) in ("tokens", "bytes"):
            value = round(float(found[1]) * _factor(found[2]))
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = value * _UNITS.get(spelling, 1)
    return value


def knob_unit(knob: str) -> str | None:
    """The unit of a knob's canonical value; bytes for sizes that are kept under a name of their own."""
    if knob == "kv.pool_bytes_override":
        return "bytes"
    return knob_table()[knob].unit if knob in knob_table() else None


def _factor(letter: str) -> int:
    if letter in _DECIMAL:
        return _DECIMAL[letter]
    return int(1024 ** ("KMG".index(letter) + 1))


def size_bytes(text: str) -> int | None:
    """Bytes of a container's size: "16g", "10.24gb", "64Mi", "1Gi", "512"; None when it is no size."""
    word = re.sub(r"\s", "", str(text)).lower()
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgtp]?)(i?)(b?)", word)
    if found is None:
        return None
    # docker counts in powers of two whatever the spelling; Kubernetes writes Mi for these and M for the others, and
    # nobody's cause hangs on that 5 %.
    return round(float(found[1]) * 1024.0 ** ("kmgtp".index(found[2]) + 1 if found[2] else 0))


def cores(text: str) -> float | None:
    """Cores of "10", "1.5", "500m" (thousandths) or "400%"; None when it is no amount."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(m|%)?\s*", str(text))
    if found is None:
        return None
    return float(found[1]) * {"m": 0.001, "%": 0.01}.get(found[2] or "", 1.0) or None


def _fast_tokenizer(text: str) -> Value | None:
    return {"slow": False, "auto": None}.get(text.lower(), True) if text else None


def _speculative(text: str) -> Value | None:
    return _from_json(text, ("num_speculative_tokens",), typed)


def _pixels(text: str) -> Value | None:
    return _from_json(text, ("max_pixels", "images_kwargs.max_pixels", "size.longest_edge"), typed)


def _peer(text: str) -> Value | None:
    word = text.strip().lower()
    # NCCL_P2P_DISABLE=1 and NCCL_P2P_LEVEL=LOC both keep GPUs from copying directly; other levels say how far.
    return {"loc": False, "1": False, "0": True}.get(word)


def _infiniband(text: str) -> Value | None:
    return {"1": False, "0": True}.get(text.strip())


def _shared_parts(text: str) -> Value | None:
    """llama.cpp's --tensor-split names a share for each device: as many as there are."""
    value = typed(text)
    parts = [part for part in re.split(r"[,/]", text) if part.strip() and part.strip() != "0"]
    return len(parts) if "," in text or "/" in text else value if isinstance(value, int) else None


def _graph_sizes(text: str) -> Value | None:
    sizes = [int(size) for size in re.findall(r"\d+", text)]
    return max(sizes) if sizes else None


def _ipc(text: str) -> Value | None:
    return text.strip().lower() in ("host", "true")


def _from_json(text: str, paths: tuple[str, ...], convert: Callable[[str], Value]) -> Value | None:
    if not text.lstrip().startswith("{"):
        return convert(text) if text else None
    try:
        document = json.loads(text)
    except ValueError:
        return None
    for path in paths:
        value = document
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, int | float):
            return value
    return None


_SPECIAL: Mapping[str, Callable[[str], Value | None]] = {
    "fast_tokenizer": _fast_tokenizer,
    "speculative_tokens": _speculative,
    "mm_max_pixels": _pixels,
    "nccl_p2p": _peer,
    "nccl_ib": _infiniband,
    "tensor_parallel_size": _shared_parts,
    "cuda_graph_max_bs": _graph_sizes,
    "shm_size": size_bytes,
    "ipc_host": _ipc,
    "host_ram": size_bytes,
    "cpu_limit": cores,
}
