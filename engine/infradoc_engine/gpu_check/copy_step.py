"""The ceiling of everything that is bound by memory: a copy on the device, bytes read and written counted together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from infradoc_engine.gpu_check.look import Look, Row
from infradoc_engine.gpu_check.timing import rotations, time_launches

SIZES = (16 << 20, 64 << 20, 256 << 20, 1 << 30, 4 << 30)
LARGE = 1 << 30  # from here on the caches do not matter


def run(look: Look) -> Iterator[Row]:
    """A row a size; the best large one is what shares are taken of."""
    room = look.free_bytes() // 4
    for size in SIZES[:1] if look.dry else [size for size in SIZES if size <= room]:
        count = 1 if look.dry else max(1, rotations(2 * size))
        sources = [torch.empty(size // 2, dtype=torch.bfloat16, device=look.device).normal_() for _ in range(count)]
        targets = [torch.empty_like(source) for source in sources]
        copies: list[Callable[[], object]] = [
            partial(target.copy_, source) for source, target in zip(sources, targets, strict=True)
        ]
        times = time_launches(copies, seconds=0.3)
        speed = 2 * size / times["p50_us"] * 1e6
        if size >= LARGE or look.dry:
            look.copy_bytes_per_second = max(look.copy_bytes_per_second or 0.0, speed)
        yield {"bytes": size, **times, "gigabytes_per_second": speed / 1e9}
        del sources, targets, copies
