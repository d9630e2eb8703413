"""What each single block is doing, worked out from lists and tables: the picture for people, and the ledger's audit."""

from __future__ import annotations

from collections.abc import Mapping

from infradoc_engine.core.block_pool import BlockPool
from infradoc_engine.core.ledger import BlockState
from infradoc_engine.core.swap import SwapSpace


def classify(
    pool: BlockPool, tables: Mapping[int, int], watermark_blocks: int, swaps: SwapSpace | None = None
) -> list[BlockState]:
    """The state of each block by id; no running count is used. O(num_blocks)."""
    swaps = swaps or SwapSpace()
    states: list[BlockState] = ["leaked"] * pool.num_blocks
    for block, count in tables.items():
        copied = swaps.reserved(block, idle=False)
        states[block] = "reserved" if copied else ("live" if count == 1 else "shared")
    free, cached = list(pool.free_order()), list(pool.cached_order())
    for block in free:
        states[block] = "reserved" if swaps.reserved(block, idle=True) else "free"
    for block in cached:
        states[block] = "reserved" if swaps.reserved(block, idle=True) else "cached"
    free, cached = ([b for b in blocks if states[b] != "reserved"] for blocks in (free, cached))
    for block in _kept_by_watermark(free, cached, watermark_blocks):
        states[block] = "reserved"
    return states


def _kept_by_watermark(free: list[int], cached: list[int], watermark_blocks: int) -> list[int]:
    """The blocks that would be handed out last: they are what the watermark keeps when the others are gone."""
    from_free = min(watermark_blocks, len(free))
    from_cached = min(watermark_blocks - from_free, len(cached))
    return free[len(free) - from_free :] + cached[len(cached) - from_cached :]


def run_lengths(states: list[BlockState]) -> list[tuple[str, int]]:
    """(state, how many blocks in a row) in the order of block ids."""
    runs: list[tuple[str, int]] = []
    start = 0
    for index in range(1, len(states) + 1):
        if index == len(states) or states[index] != states[start]:
            runs.append((states[start], index - start))
            start = index
    return runs
