"""The kernels beside attention: bytes that they must move a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from infradoc_engine.gpu_check.look import Look, Row
from infradoc_engine.gpu_check.timing import rotations, time_launches
from infradoc_kernels.kv_cache_write import kv_cache_write
from infradoc_kernels.reference.rope import rope_angles
from infradoc_kernels.rms_norm import rms_norm
from infradoc_kernels.rope import rope
from infradoc_kernels.silu_and_mul import silu_and_mul
from infradoc_kernels.top_p import top_p_mask

Made = tuple[Callable[[], object], int]  # a launch over inputs of its own, bytes that it must move


def run(look: Look) -> Iterator[Row]:
    """A row for each kernel and number of rows; shapes of Llama-3-8B."""
    rows_of = (3,) if look.dry else (32,) if look.quick else (1, 32, 512, 8192)
    for name, make in (("rms_norm", _norm), ("silu_and_mul", _gate), ("rope", _rope), ("kv_cache_write", _write)):
        for rows in rows_of:
            yield _measure(look, name, partial(make, look, rows), rows)
    for rows in (2,) if look.dry else (1, 64):
        yield _measure(look, "top_p_mask", partial(_top_p, look, rows), rows)


def _measure(look: Look, name: str, make: Callable[[], Made], rows: int) -> Row:
    launch, moved = make()
    launches = [launch, *(make()[0] for _ in range(0 if look.dry else rotations(moved) - 1))]
    times = time_launches(launches)
    speed = moved / times["p50_us"] * 1e6
    row = {"kernel": name, "rows": rows, **times, "gigabytes_per_second": speed / 1e9}
    return row | {"share_of_copy": look.share_of_copy(speed)}


def _random(look: Look, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=look.device).to(look.dtype)


def _norm(look: Look, rows: int) -> Made:
    hidden = 48 if look.dry else 4096
    x, residual, weight = _random(look, rows, hidden), _random(look, rows, hidden), _random(look, hidden)
    return partial(rms_norm, x, weight, 1e-5, residual), 4 * x.nbytes


def _gate(look: Look, rows: int) -> Made:
    x = _random(look, rows, 96 if look.dry else 2 * 14336)
    return partial(silu_and_mul, x), 3 * x.nbytes // 2


def _rope(look: Look, rows: int) -> Made:
    heads, dim = (6, 16) if look.dry else (40, 128)
    x = _random(look, rows, heads + (2 if look.dry else 8), dim)[:, :heads]
    cos, sin = (part.to(look.device)[:rows] for part in rope_angles(dim, 10000.0, rows))
    return partial(rope, x, cos, sin), 2 * rows * heads * dim * x.element_size() + 2 * cos.nbytes


def _write(look: Look, rows: int) -> Made:
    heads, dim, size = (2, 16, 4) if look.dry else (8, 128, 16)
    k, v = _random(look, rows, heads, dim), _random(look, rows, heads, dim)
    blocks = -(-rows // size) + 1
    caches = [torch.empty(blocks, heads, size, dim, dtype=look.dtype, device=look.device) for _ in range(2)]
    slots = torch.randperm(blocks * size, device=look.device)[:rows]
    return partial(kv_cache_write, k, v, caches[0], caches[1], slots), 4 * k.nbytes


def _top_p(look: Look, rows: int) -> Made:
    probs = (torch.randn(rows, 300 if look.dry else 128256, device=look.device) * 2).softmax(-1)
    top_k = torch.zeros(rows, dtype=torch.int64, device=look.device)
    top_p = torch.full((rows,), 0.9, dtype=torch.float64, device=look.device)
    return partial(top_p_mask, probs, top_k, top_p), 2 * probs.nbytes
