"""Settings next to one that does not fit, each changed as little as possible. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil

from infradoc_rules.sizing.account import BLOCK, Account, Setting, account, dtype_of, kv_item, quantization_in
from infradoc_rules.sizing.dtypes import DTYPES, QUANTIZATIONS
from infradoc_rules.sizing.model import Model, SizingError

HIGHEST_FRACTION = 0.95  # above it graphs and the sampler's warm-up have no room
_SHORTEST = 256  # tokens: a server for less serves nobody
_MOST_GPUS = 16


@dataclass(frozen=True, slots=True)
class Nearest:
    """A setting that fits. changed: (option, new value) in the order of their effect."""

    changed: tuple[tuple[str, str], ...]
    setting: Setting
    account: Account


def nearest(model: Model, setting: Setting) -> list[Nearest]:
    """Settings that fit, one change each; where no change of the launch itself is enough, two at once."""
    moves: tuple[Callable[[Model, Setting], Setting | None], ...] = (_fraction, _length, _kv, _gpus, _four_bit)
    found = [one for move in moves if (one := _tried(model, setting, move(model, setting)))]
    if any(set(dict(one.changed)) & {"gpu_memory_utilization", "max_model_len", "kv_cache_dtype"} for one in found):
        return found
    top = replace(setting, fraction=max(setting.fraction, HIGHEST_FRACTION))
    tops = (top, replace(top, kv_dtype=_eight_bits(model, setting)))
    return [one for each in tops if (one := _tried(model, setting, _length(model, each)))] + found


def _tried(model: Model, old: Setting, new: Setting | None) -> Nearest | None:
    if new is None or new == old:
        return None
    made = account(model, new)
    return None if made.problem else Nearest(tuple(_changes(old, new)), new, made)


def _changes(old: Setting, new: Setting) -> Iterator[tuple[str, str]]:
    if new.fraction != old.fraction:
        yield "gpu_memory_utilization", f"{new.fraction:g}"
    if new.max_model_len != old.max_model_len:
        yield "max_model_len", str(new.max_model_len)
    if new.kv_dtype != old.kv_dtype:
        yield "kv_cache_dtype", str(new.kv_dtype)
    if new.tensor_parallel != old.tensor_parallel:
        yield "tensor_parallel_size", str(new.tensor_parallel)
    if new.quantization != old.quantization:
        yield "quantization", str(new.quantization)


def _fraction(model: Model, setting: Setting) -> Setting | None:
    """The least fraction that holds a longest request; for what lies beyond the fraction, the highest that is not."""
    now = account(model, setting)
    if now.problem == "beyond_fraction":
        most = (now.total + now.activation - now.graphs - now.sampler) / now.total
        return replace(setting, fraction=int(most * 100) / 100) if most > 0.01 else None
    fraction = ceil((now.budget - now.kv + now.needed) / now.total * 100) / 100
    return replace(setting, fraction=fraction) if setting.fraction < fraction <= HIGHEST_FRACTION else None


def _length(model: Model, setting: Setting) -> Setting | None:
    """The longest max_model_len that fits, in whole blocks (in whole 1,024s from 4,096 up)."""
    low, high = _SHORTEST // BLOCK, account(model, setting).max_model_len // BLOCK
    while low < high:
        middle = (low + high + 1) // 2
        fits = not account(model, replace(setting, max_model_len=middle * BLOCK)).problem
        low, high = (middle, high) if fits else (low, middle - 1)
    tokens = low * BLOCK
    return replace(setting, max_model_len=tokens // 1024 * 1024 if tokens >= 4096 else tokens)


def _eight_bits(model: Model, setting: Setting) -> str | None:
    return "fp8" if kv_item(model, setting) > 1 else setting.kv_dtype


def _kv(model: Model, setting: Setting) -> Setting | None:
    return replace(setting, kv_dtype=_eight_bits(model, setting))


def _gpus(model: Model, setting: Setting) -> Setting | None:
    """The next number of GPUs that shares the heads and fits."""
    for gpus in range(setting.tensor_parallel + 1, _MOST_GPUS + 1):
        candidate = replace(setting, tensor_parallel=gpus)
        try:
            if gpus & (gpus - 1) == 0 and not account(model, candidate).problem:
                return candidate
        except SizingError:
            continue
    return None


def _four_bit(model: Model, setting: Setting) -> Setting | None:
    """A checkpoint in four bits, when the present one has more; a float32 launch becomes 16 bits with it."""
    present = quantization_in(model, setting)
    if present in QUANTIZATIONS and QUANTIZATIONS[present] < 1:
        return None
    wide = DTYPES[dtype_of(model, setting)] > 2
    return replace(setting, quantization="awq", dtype="float16" if wide else setting.dtype)
