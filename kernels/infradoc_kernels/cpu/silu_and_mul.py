"""The gate of the feed-forward part."""

from __future__ import annotations

from typing import Any

import torch
from numba import types

from infradoc_kernels.cpu.compile import TEAM_VALUES, body, entry, gomp_parallel, part, team_size
from infradoc_kernels.cpu.intrinsics import LANES, fetch_add, rest_silu_and_mul, row_silu_and_mul, run_team_on

_ROWS = 4  # of a work item


@part
def _gate(first: int, last: int, x: int, out: int, inner: int) -> None:
    whole = inner // LANES * LANES * 4
    for row in range(first, last):
        gate, target = x + 2 * row * inner * 4, out + row * inner * 4
        up = gate + inner * 4
        row_silu_and_mul(gate, up, target, inner // LANES)
        rest_silu_and_mul(gate + whole, up + whole, target + whole, inner % LANES)


@body()
def _team(args: Any) -> None:
    rows = args[1]
    while True:
        first = fetch_add(args[0]) * _ROWS
        if first >= rows:
            return
        _gate(first, min(first + _ROWS, rows), args[2], args[3], args[4])


@entry(types.void(*[types.int64] * 7), nogil=False)
def _run(gomp: int, team_body: int, threads: int, rows: int, x: int, out: int, inner: int) -> None:
    if threads == 1:
        _gate(0, rows, x, out, inner)
        return
    run_team_on(gomp, team_body, threads, (rows, x, out, inner))


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """As reference.silu_and_mul, for float32."""
    x = x.contiguous()
    rows, inner = x.shape[0], x.shape[1] // 2
    out = torch.empty((rows, inner), dtype=torch.float32)
    threads = team_size() if rows * inner >= TEAM_VALUES else 1
    _run(gomp_parallel(), _team, threads, rows, x.data_ptr(), out.data_ptr(), inner)
    return out
