"""The nearest settings that would have fitted, with the longest requests that each holds at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from infradoc_rules.model import Value
from infradoc_rules.sizing.account import Account
from infradoc_rules.sizing.dtypes import QUANTIZATIONS
from infradoc_rules.sizing.model import Model
from infradoc_rules.sizing.nearest import HIGHEST_FRACTION
from infradoc_rules.sizing.printed import Printed, adjusted, under
from infradoc_rules.sizing.setting import Setting, kv_item, quantization_in, shareable

_MOST_GPUS = 16  # of one stage: two hosts of eight
_ROUND = 256  # tokens
_LEAST = 256  # tokens that a server is worth starting for
SHORT = frozenset({"weights", "no_kv", "kv_too_small"})  # what more GPUs mend


def fits(model: Model, setting: Setting, printed: Printed, gpus: float | None) -> Iterator[tuple[str, Value]]:
    """fit_max_len, fit_share, fit_tp; the requests that the last two, 8-bit keys and a checkpoint in four bits hold, as
    NAME_requests; NAME_max_len where they hold shorter ones alone; four_bit_bytes_per_gpu.

    `gpus`: how many the host has, None when that is not known. A setting that does not fit is not named.
    """
    now = adjusted(model, setting, printed).account
    length = _length(now)
    if length is not None:
        yield "fit_max_len", length
    share = _share(now)
    if share is not None and now.problem != "beyond_fraction":
        yield "fit_share", share
        yield "fit_share_requests", _requests(under(model, setting, printed, replace(setting, fraction=share)))
    if kv_item(model, setting) > 1:
        eight = under(model, setting, printed, replace(setting, kv_dtype="fp8"))
        yield from [("fit_kv8_requests", _requests(eight))] if eight.kv >= eight.needed else []
    yield from _four_bits(model, setting, printed)
    shared = more_gpus(model, setting, printed, gpus)
    if shared is not None:
        yield "fit_tp", shared[0]
        yield "fit_tp_requests", _requests(shared[1])
        shorter = _length(shared[1])
        yield from [("fit_tp_max_len", shorter)] if shorter is not None else []


def _requests(made: Account) -> float:
    return round(made.requests, 1)


def _length(now: Account) -> int | None:
    """The longest request that the present KV cache holds, in whole 256s; None where nothing is left, or all fits."""
    if now.kv <= 0 or now.kv >= now.needed:
        return None
    tokens = int(now.max_model_len * now.kv / now.needed)
    return tokens // _ROUND * _ROUND if tokens >= _LEAST else None


def _share(now: Account) -> float | None:
    """The least share of the device that holds one longest request; None above what leaves the driver room."""
    if now.kv >= now.needed:
        return None
    share = ceil((now.budget - now.kv + now.needed) / now.total * 100) / 100
    return share if share <= HIGHEST_FRACTION else None


def _four_bits(model: Model, setting: Setting, printed: Printed) -> Iterator[tuple[str, Value]]:
    """The weights from a checkpoint in four bits, unless the present one has so few."""
    present = quantization_in(model, setting)
    if QUANTIZATIONS.get(present or "", 2.0) < 1:
        return
    made = under(model, setting, replace(printed, weights=None), replace(setting, quantization="int4"))
    yield "four_bit_bytes_per_gpu", made.weights
    if made.problem not in SHORT:
        yield "fit_four_bit_requests", _requests(made)
    elif (length := _length(made)) is not None:
        yield "fit_four_bit_max_len", length


def more_gpus(model: Model, setting: Setting, printed: Printed, gpus: float | None) -> tuple[int, Account] | None:
    """(GPUs, account) of the least tensor parallelism above the present one that fits, within what the host has.

    Where none holds a longest request, the one that leaves the most for the KV cache.
    """
    most = _MOST_GPUS if gpus is None else int(gpus) // setting.pipeline_parallel
    best: tuple[int, Account] | None = None
    for count in range(setting.tensor_parallel + 1, most + 1):
        if not shareable(model, count):
            continue
        made = under(model, setting, printed, replace(setting, tensor_parallel=count))
        if made.problem not in SHORT:
            return count, made
        if made.problem == "kv_too_small" and _length(made) is not None:
            best = count, made
    return best
