"""Settings next to one that does not fit, each changed as little as possible. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil

from infradoc_rules.sizing.account import Account, account
from infradoc_rules.sizing.dtypes import DTYPES, QUANTIZATIONS
from infradoc_rules.sizing.model import Model
from infradoc_rules.sizing.parts import BLOCK, logit_bytes, step_bytes
from infradoc_rules.sizing.setting import Setting, dtype_of, kv_item, quantization_in, shareable

HIGHEST_FRACTION = 0.95  # above it graphs and the sampler's warm-up have no room
_SHORTEST = 256  # tokens: a server for less serves nobody
_MOST_GPUS = 16
_FEWEST = 16  # requests at once: below it there is no batch
# Options that neither cost devices nor change the weights.
_OF_THE_LAUNCH = {"gpu_memory_utilization", "max_model_len", "kv_cache_dtype", "max_num_seqs", "enforce_eager"}


@dataclass(frozen=True, slots=True)
class Nearest:
    """A setting that fits. changed: (option, new value) in the order of their effect."""

    changed: tuple[tuple[str, str], ...]
    setting: Setting
    account: Account


def nearest(model: Model, setting: Setting) -> list[Nearest]:
    """Settings that fit, one change each; where no change of the launch itself is enough, two at once."""
    moves: tuple[Callable[[Model, Setting], Setting | None], ...] = (
        _fraction,
        _length,
        _kv,
        _seqs,
        _eager,
        _gpus,
        _four_bit,
    )
    found = [one for move in moves if (one := _tried(model, setting, move(model, setting)))]
    if any(set(dict(one.changed)) & _OF_THE_LAUNCH for one in found):
        return found
    top = replace(setting, fraction=max(setting.share, HIGHEST_FRACTION))
    tops = (top, replace(top, kv_dtype=_eight_bits(model, setting)))
    return [one for each in tops if (one := _tried(model, setting, _length(model, each)))] + found


def _tried(model: Model, old: Setting, new: Setting | None) -> Nearest | None:
    if new is None or new == old:
        return None
    made = account(model, new)
    return None if made.problem else Nearest(tuple(_changes(old, new)), new, made)


def _changes(old: Setting, new: Setting) -> Iterator[tuple[str, str]]:
    if new.share != old.share:
        yield "gpu_memory_utilization", f"{new.share:g}"
    if new.max_model_len != old.max_model_len:
        yield "max_model_len", str(new.max_model_len)
    if new.kv_dtype != old.kv_dtype:
        yield "kv_cache_dtype", str(new.kv_dtype)
    if new.max_num_seqs != old.max_num_seqs:
        yield "max_num_seqs", str(new.max_num_seqs)
    if new.eager != old.eager:
        yield "enforce_eager", ""
    if new.tensor_parallel != old.tensor_parallel:
        yield "tensor_parallel_size", str(new.tensor_parallel)
    if new.quantization != old.quantization:
        yield "quantization", str(new.quantization)


def _fraction(model: Model, setting: Setting) -> Setting | None:
    """The least fraction that holds a longest request; for what lies beyond the fraction, the highest that is not."""
    now = account(model, setting)
    if now.problem == "beyond_fraction":
        most = (now.total - now.beyond) / now.total
        return replace(setting, fraction=int(most * 100) / 100) if most > 0.01 else None
    fraction = ceil((now.budget - now.kv + now.needed) / now.total * 100) / 100
    return replace(setting, fraction=fraction) if setting.share < fraction <= HIGHEST_FRACTION else None


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


def _seqs(model: Model, setting: Setting) -> Setting | None:
    """Fewer requests at once, in halves, where their logits are the activation peak."""
    count = setting.batch(model)[0] // 2
    while count >= _FEWEST and logit_bytes(model, setting) > step_bytes(model, setting):
        fewer = replace(setting, max_num_seqs=count)
        if not account(model, fewer).problem:
            return fewer
        count //= 2
    return None


def _eager(model: Model, setting: Setting) -> Setting | None:
    """Without CUDA graphs."""
    return None if setting.eager else replace(setting, eager=True)


def _gpus(model: Model, setting: Setting) -> Setting | None:
    """The least number of GPUs that shares the model and fits."""
    for gpus in range(setting.tensor_parallel + 1, _MOST_GPUS + 1):
        candidate = replace(setting, tensor_parallel=gpus)
        if shareable(model, gpus) and not account(model, candidate).problem:
            return candidate
    return None


def _four_bit(model: Model, setting: Setting) -> Setting | None:
    """A checkpoint in four bits, when the present one has more; a float32 launch becomes 16 bits with it."""
    present = quantization_in(model, setting)
    if present in QUANTIZATIONS and QUANTIZATIONS[present] < 1:
        return None
    wide = DTYPES[dtype_of(model, setting)] > 2
    return replace(setting, quantization="awq", dtype="float16" if wide else setting.dtype)
