"""The nearest settings that fit when several things are changed at once. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import log2

from infradoc_rules.sizing.account import account
from infradoc_rules.sizing.model import Model
from infradoc_rules.sizing.nearest import (
    HIGHEST_FRACTION,
    MOST_GPUS,
    Nearest,
    by_launch_alone,
    eight_bit,
    eight_bits,
    four_bit,
    nearest,
    shorter,
    tried,
)
from infradoc_rules.sizing.setting import Setting, shareable

SHOWN = 3
_LEAST_SHARE = 0.5  # of the present tokens: for less of them a further change is none of use
# What a change costs whoever makes it, in our judgement: a flag little, a length what requests lose of it by each half,
# another checkpoint its download and its errors, devices their price by each doubling.
_COSTS = {"gpu_memory_utilization": 1.0, "kv_cache_dtype": 2.0, "max_model_len": 1.0, "fp8": 3.0, "four": 4.0}
_HALF, _DOUBLE = 1.0, 3.5


def proposals(model: Model, setting: Setting) -> tuple[list[Nearest], list[Nearest]]:
    """(single changes that fit, the three nearest combinations where no single change of the launch is enough)."""
    singles = nearest(model, setting)
    return singles, [] if by_launch_alone(singles) else combined(model, setting, singles)


def combined(model: Model, setting: Setting, singles: Sequence[Nearest] = ()) -> list[Nearest]:
    """Up to three combinations, the cheapest first; none changes what another or one of `singles` does, and more."""
    more = {one.setting.tensor_parallel for one in singles} - {setting.tensor_parallel}  # enough by themselves
    new = _candidates(model, setting, min(more, default=MOST_GPUS + 1))
    found = [one for each in new if (one := tried(model, setting, each)) and len(one.changed) > 1]
    kept: list[Nearest] = []
    for one in sorted(found, key=lambda one: (cost(one, setting, model), -one.account.requests)):
        if not any(_is_more_of(one, other) for other in (*singles, *kept)):
            kept.append(one)
    return kept[:SHOWN]


def _candidates(model: Model, setting: Setting, below: int) -> Iterator[Setting]:
    """Every way to store, fill and share by fewer than `below` GPUs, as long as asked or as long as fits."""
    stored = [setting, *(new for new in (eight_bit(model, setting), four_bit(model, setting)) if new is not None)]
    for weights in stored:
        for gpus in _gpus(model, setting, below):
            for kv_dtype in dict.fromkeys((setting.kv_dtype, eight_bits(model, setting))):
                for fraction in dict.fromkeys((setting.fraction, max(setting.share, HIGHEST_FRACTION))):
                    new = replace(weights, tensor_parallel=gpus, kv_dtype=kv_dtype, fraction=fraction)
                    if not account(model, new).problem:
                        yield new
                    elif (cut := shorter(model, new)) is not None:
                        yield cut


def _gpus(model: Model, setting: Setting, below: int) -> list[int]:
    """The present number of GPUs, and its doubles that share the model."""
    counts = [setting.tensor_parallel]
    while counts[-1] * 2 <= MOST_GPUS:
        counts.append(counts[-1] * 2)
    return [count for count in counts if count < below and shareable(model, count)]


def _is_more_of(one: Nearest, other: Nearest) -> bool:
    """Whether a combination changes what a nearer one does, and more, without giving much for it."""
    if not set(_names(other)) <= set(_names(one)):
        return False
    return _LEAST_SHARE * one.account.max_model_len <= other.account.max_model_len


def _names(one: Nearest) -> list[str]:
    """What it changes; with the value where another one is another purchase or another checkpoint."""
    with_value = ("quantization", "tensor_parallel_size")
    return [f"{name}={value}" if name in with_value else name for name, value in one.changed]


def cost(one: Nearest, setting: Setting, model: Model) -> float:
    """How far a proposal is from the launch."""
    asked = account(model, setting).max_model_len
    total = _HALF * log2(asked / one.account.max_model_len) if one.account.max_model_len < asked else 0.0
    for name, value in one.changed:
        if name == "quantization":
            total += _COSTS["fp8" if value == "fp8" else "four"]
        elif name == "tensor_parallel_size":
            total += _DOUBLE * log2(one.setting.tensor_parallel / setting.tensor_parallel)
        else:
            total += _COSTS.get(name, 1.0)
    return total
