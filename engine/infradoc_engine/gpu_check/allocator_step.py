"""torch's allocator after some use: what the engine's torch_* metrics will be made of."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from infradoc_engine.gpu_check.look import Look, Row


def run(look: Look) -> Iterator[Row]:
    """Statistics while tensors of three sizes are held, after freeing every other one, and after giving them back."""
    if look.device.type != "cuda":
        yield {"skipped": "the CPU has no caching allocator"}
        return
    held = [torch.empty(size << 10, dtype=torch.int8, device=look.device) for size in (100, 3000, 50_000) * 8]
    yield {"when": "held", **_stats(look)}
    del held[::2]
    yield {"when": "every other one freed", **_stats(look)}
    held.clear()
    torch.cuda.empty_cache()
    yield {"when": "given back", **_stats(look)}


def _stats(look: Look) -> Row:
    free, total = torch.cuda.mem_get_info(look.device)
    stats = torch.cuda.memory_stats(look.device)
    return {"free_bytes": free, "total_bytes": total, "memory_stats": {key: int(stats[key]) for key in sorted(stats)}}
