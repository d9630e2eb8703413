"""The best token of each row of logits."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import types

from infradoc_kernels.cpu.compile import TEAM_VALUES, body, entry, gomp_parallel, part, team_size
from infradoc_kernels.cpu.intrinsics import LANES, fetch_add, load_f32, row_max, run_team_on, store_i64

_STRETCH = 1024  # numbers whose maximum is taken at once; only the best stretch is searched for its place
_MINUS_INFINITY = np.float32(-np.inf)


@part
def _best(row: int, count: int) -> int:
    """The first place of the maximum of `count` float32; 0 when nothing is above minus infinity."""
    best, first = _MINUS_INFINITY, 0
    whole = count // _STRETCH * _STRETCH
    for start in range(0, whole, _STRETCH):
        most = row_max(row + start * 4, _STRETCH // LANES)
        if most > best:
            best, first = most, start
    place = first
    for i in range(first, min(first + _STRETCH, whole)):
        if load_f32(row, i) == best:
            place = i
            break
    for i in range(whole, count):
        if load_f32(row, i) > best:
            best, place = load_f32(row, i), i
    return place


@body()
def _team(args: Any) -> None:
    while True:
        row = fetch_add(args[0])
        if row >= args[1]:
            return
        store_i64(args[3], row, _best(args[2] + row * args[4] * 4, args[4]))


@entry(types.void(*[types.int64] * 7), nogil=True)
def _run(gomp: int, team_body: int, threads: int, rows: int, x: int, out: int, count: int) -> None:
    run_team_on(gomp, team_body, threads, (rows, x, out, count))


def argmax(x: torch.Tensor) -> torch.Tensor:
    """As reference.argmax, for float32; the first of several maxima."""
    x = x.contiguous()
    rows, count = x.shape
    out = torch.empty(rows, dtype=torch.int64)
    threads = team_size() if rows > 1 and x.numel() >= TEAM_VALUES else 1
    _run(gomp_parallel(), _team, threads, rows, x.data_ptr(), out.data_ptr(), count)
    return out
