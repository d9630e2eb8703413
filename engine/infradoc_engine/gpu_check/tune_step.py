"""A few settings of the decode kernel on a few shapes, beside those that ship; the best ones are marked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from infradoc_engine.gpu_check.look import Look, Row
from infradoc_engine.gpu_check.paged_case import Shape, uniform_batch
from infradoc_engine.gpu_check.timing import rotations, time_launches
from infradoc_kernels import paged_attention_decode as decode
from infradoc_kernels.paged_attention_settings import Splits, Tiling, decode_tiling, limits_of

# Shape, batch, context.
WORK = (
    (Shape(32, 8, 128, 16), 32, 8192),
    (Shape(32, 8, 128, 16), 4, 8192),
    (Shape(32, 32, 128, 16), 32, 2048),
    (Shape(9, 3, 64, 16), 32, 2048),
)
KEYS, WARPS, STAGES = (64, 128, 32), (4, 8), (3, 4, 2)
SPLITS = (0.5, 2.0, 3.0)  # times the shipped count


def run(look: Look) -> Iterator[Row]:
    """A row a setting; the last row of each shape is the best."""
    for shape, batch, context in ((Shape(4, 2, 16, 4), 2, 40),) if look.dry else WORK[:1] if look.quick else WORK:
        rows: list[Row] = []
        for row in _tune(look, shape, batch, context):
            rows.append(row)
            yield row
        good = [row for row in rows if "p50_us" in row]
        if good:
            yield {**min(good, key=lambda row: row["p50_us"]), "best": True}


def _tune(look: Look, shape: Shape, batch: int, context: int) -> Iterator[Row]:
    item = look.dtype.itemsize
    one = batch * context * shape.token_values * item
    count, width = (1 if look.dry else rotations(one)), -(-context // shape.block_size)
    size = (count * batch * width, shape.kv_heads, shape.block_size, shape.head_dim)
    k, v = (torch.empty(size, dtype=look.dtype, device=look.device).normal_() for _ in range(2))
    tables = torch.randperm(size[0], device=look.device).to(torch.int32).view(count, batch, width)
    q = torch.randn(batch, shape.heads, shape.head_dim, device=look.device).to(look.dtype)
    plans = [uniform_batch(table, 1, context, look.device) for table in tables]
    out = torch.empty_like(q)
    shipped = decode_tiling(shape.heads // shape.kv_heads, shape.head_dim, item, limits_of(look.device))
    about = {**shape.row(), "batch": batch, "context": context}
    for tiling, factor in _settings(shipped, look.dry):
        if look.left() <= 0:
            return
        row: Row = {**about, "keys": tiling.keys, "warps": tiling.num_warps, "stages": tiling.num_stages}
        try:
            with _using(tiling):
                splits = decode.plan_decode_splits(q, k, plans[0])
                splits = _scaled(splits, factor)
                scale = shape.head_dim**-0.5
                launches = [
                    partial(decode.paged_attention_decode, q, k, v, p, scale, out, splits=splits) for p in plans
                ]
                times = time_launches(launches, seconds=0.03)
        except Exception as error:  # too much shared memory, or a compile that fails: a row like the others
            yield row | {"error": (str(error).splitlines() or [""])[0][:200]}
            continue
        speed = one / times["p50_us"] * 1e6
        row |= {"splits": splits.count, "min_tiles": splits.min_tiles, "shipped": (tiling, factor) == (shipped, 1.0)}
        yield row | times | {"gigabytes_per_second": speed / 1e9, "share_of_copy": look.share_of_copy(speed)}


def _settings(shipped: Tiling, dry: bool) -> Iterator[tuple[Tiling, float]]:
    """The shipped one first, then other splits of it (no compile), then other tiles."""
    yield shipped, 1.0
    for factor in SPLITS[:1] if dry else SPLITS:
        yield shipped, factor
    for keys in () if dry else KEYS:
        for warps in WARPS:
            for stages in STAGES:
                tiling = Tiling(shipped.rows, keys, warps, stages, shipped.resident)
                if tiling != shipped:
                    yield tiling, 1.0


def _scaled(splits: Splits, factor: float) -> Splits:
    count = max(1, round(splits.count * factor))
    return Splits(count, max(1, -(-splits.min_tiles * splits.count // count)))


@contextmanager
def _using(tiling: Tiling) -> Iterator[None]:
    """The decode module launches with this tiling."""
    launcher: Any = decode
    before = launcher.decode_tiling
    launcher.decode_tiling = lambda *_: tiling
    try:
        yield
    finally:
        launcher.decode_tiling = before
