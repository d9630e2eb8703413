"""Root-mean-square normalisation with the residual addition before it, in two looks at a row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import types

from infradoc_kernels.cpu.compile import TEAM_VALUES, bits_of, body, entry, gomp_parallel, part, team_size
from infradoc_kernels.cpu.intrinsics import fetch_add, float_of_bits, load_f32, run_team_on, store_f32

_ROWS = 8  # of a work item


@part
def _norm(
    first: int, last: int, x: int, residual: int, weight: int, y: int, summed: int, hidden: int, eps: int
) -> None:
    for row in range(first, last):
        at = row * hidden * 4
        total = np.float32(0)
        if residual:
            for i in range(hidden):
                value = load_f32(x + at, i) + load_f32(residual + at, i)
                store_f32(summed + at, i, value)
                total += value * value
        else:
            for i in range(hidden):
                value = load_f32(x + at, i)
                total += value * value
        source = (summed if residual else x) + at
        scale = np.float32(1) / np.float32(math.sqrt(total / np.float32(hidden) + float_of_bits(np.int32(eps))))
        for i in range(hidden):
            store_f32(y + at, i, load_f32(source, i) * scale * load_f32(weight, i))


@body()
def _team(args: Any) -> None:
    rows = args[1]
    while True:
        first = fetch_add(args[0]) * _ROWS
        if first >= rows:
            return
        _norm(first, min(first + _ROWS, rows), args[2], args[3], args[4], args[5], args[6], args[7], args[8])


@entry(types.void(*[types.int64] * 11), nogil=False)
def _run(
    gomp: int,
    team_body: int,
    threads: int,
    rows: int,
    x: int,
    residual: int,
    weight: int,
    y: int,
    summed: int,
    hidden: int,
    eps: int,
) -> None:
    if threads == 1:
        _norm(0, rows, x, residual, weight, y, summed, hidden, eps)
        return
    run_team_on(gomp, team_body, threads, (rows, x, residual, weight, y, summed, hidden, eps))


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """As reference.rms_norm, for float32. Raises ValueError for shapes that do not fit."""
    rows, hidden = x.shape
    if weight.shape != (hidden,) or (residual is not None and residual.shape != x.shape):
        before = None if residual is None else tuple(residual.shape)
        raise ValueError(f"x is {tuple(x.shape)}, its weight {tuple(weight.shape)} and its residual {before}")
    x, weight = x.contiguous(), weight.contiguous()
    residual = None if residual is None else residual.contiguous()
    y = torch.empty_like(x)
    summed = x if residual is None else torch.empty_like(x)
    threads = team_size() if rows * hidden >= TEAM_VALUES else 1
    earlier = 0 if residual is None else residual.data_ptr()
    _run(
        gomp_parallel(),
        _team,
        threads,
        rows,
        x.data_ptr(),
        earlier,
        weight.data_ptr(),
        y.data_ptr(),
        summed.data_ptr(),
        hidden,
        bits_of(eps),
    )
    return y, summed
