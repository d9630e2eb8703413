"""Settings next to one that does not fit, each changed as little as possible; `combined.py` changes several. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

from infradoc_rules.sizing.account import Account, account
from infradoc_rules.sizing.dtypes import QUANTIZATIONS
from infradoc_rules.sizing.model import Model
from infradoc_rules.sizing.parts import BLOCK, logit_bytes, step_bytes
from infradoc_rules.sizing.setting import Setting, dtype_of, item_of, kv_item, quantization_in, shareable
from infradoc_rules.sizing.supported import four_bits, has_fp8, has_fp8_cache, stored_as

HIGHEST_FRACTION = 0.95  # above it graphs and the sampler's warm-up have no room
_SHORTEST = 256  # tokens: a server for less serves nobody
MOST_GPUS = 16
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
    """Settings that fit, one change each."""
    moves: tuple[Callable[[Model, Setting], Setting | None], ...] = (
        _fraction,
        shorter,
        _kv,
        _seqs,
        _eager,
        _gpus,
        eight_bit,
        four_bit,
    )
    return [one for move in moves if (one := tried(model, setting, move(model, setting)))]


def by_launch_alone(found: Sequence[Nearest]) -> bool:
    """Whether a change of the launch itself is enough: neither more devices nor other weights."""
    return any(set(dict(one.changed)) <= _OF_THE_LAUNCH for one in found)


def tried(model: Model, old: Setting, new: Setting | None) -> Nearest | None:
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


def shorter(model: Model, setting: Setting) -> Setting | None:
    """The longest max_model_len that fits, in whole blocks (in whole 1,024s from 4,096 up)."""
    low, high = _SHORTEST // BLOCK, account(model, setting).max_model_len // BLOCK
    while low < high:
        middle = (low + high + 1) // 2
        fits = not account(model, replace(setting, max_model_len=middle * BLOCK)).problem
        low, high = (middle, high) if fits else (low, middle - 1)
    tokens = low * BLOCK
    return replace(setting, max_model_len=tokens // 1024 * 1024 if tokens >= 4096 else tokens)


def eight_bits(model: Model, setting: Setting) -> str | None:
    """The data type of a KV cache in eight bits where it has more and the device takes one; else the present one."""
    return "fp8" if kv_item(model, setting) > 1 and has_fp8_cache(setting.gpu) else setting.kv_dtype


def _kv(model: Model, setting: Setting) -> Setting | None:
    return replace(setting, kv_dtype=eight_bits(model, setting))


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
    for gpus in range(setting.tensor_parallel + 1, MOST_GPUS + 1):
        candidate = replace(setting, tensor_parallel=gpus)
        if shareable(model, gpus) and not account(model, candidate).problem:
            return candidate
    return None


def weight_item(model: Model, setting: Setting) -> float:
    """Bytes of a weight as the checkpoint stores it."""
    return QUANTIZATIONS.get(quantization_in(model, setting) or "", float(item_of(dtype_of(model, setting))))


def eight_bit(model: Model, setting: Setting) -> Setting | None:
    """An FP8 checkpoint, when the present one has more and the device computes in FP8."""
    fits = weight_item(model, setting) > 1 and has_fp8(setting.gpu)
    return stored_as(model, setting, "fp8") if fits else None


def four_bit(model: Model, setting: Setting) -> Setting | None:
    """A checkpoint in four bits, when the present one has more and the device has kernels for one."""
    stored = four_bits(setting.gpu)
    if stored is None or weight_item(model, setting) < 1:
        return None
    return stored_as(model, setting, stored)
