"""What every block of the pool is doing: six exclusive states, counted as they change and audited on demand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from infradoc_engine.core.block_pool import BlockPool
from infradoc_engine.core.errors import IntegrityError

BlockState = Literal["free", "live", "cached", "shared", "reserved", "leaked"]
BLOCK_STATES: tuple[BlockState, ...] = get_args(BlockState)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Blocks by state at one moment; the six sum to the pool.

    free: can be handed out, holds nothing. cached: can be handed out, holds content that a lookup finds. reserved: free
    or cached, but kept from admission by the watermark. live: in one block table. shared: in two or more. leaked: has
    a reference, but is in no table, so that nothing will ever give it back.
    """

    free: int
    live: int
    cached: int
    shared: int
    reserved: int
    leaked: int
    tail_waste_tokens: int  # empty places in the last blocks of the tables
    block_size: int
    time: float  # seconds of the engine's clock

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        return self.free + self.live + self.cached + self.shared + self.reserved + self.leaked

    @property
    def available_blocks(self) -> int:
        """Blocks that admission may hand out."""
        return self.free + self.cached

    @property
    def usage_ratio(self) -> float:
        """Share of the pool that is not available; what the watermark reserves counts as used."""
        return 1.0 - self.available_blocks / self.num_blocks

    @property
    def allocated_tokens(self) -> int:
        """Token places in blocks that belong to a table, filled or not."""
        return (self.live + self.shared) * self.block_size

    @property
    def fragmentation_ratio(self) -> float:
        """Share of the allocated places that hold no token; 0 when nothing is allocated."""
        return self.tail_waste_tokens / self.allocated_tokens if self.allocated_tokens else 0.0

    def by_state(self) -> dict[BlockState, int]:
        """Blocks per state, in the order of BLOCK_STATES."""
        return {state: int(getattr(self, state)) for state in BLOCK_STATES}


class BlockLedger:
    """How many block tables each block is in, with running counts of blocks in one and in several."""

    def __init__(self, num_blocks: int) -> None:
        self._tables = [0] * num_blocks
        self.live = 0
        self.shared = 0

    def grow(self, num_blocks: int) -> None:
        """Follow the pool to its new size."""
        self._tables.extend([0] * (num_blocks - len(self._tables)))

    def attach(self, block: int) -> None:
        """`block` entered one more table."""
        before = self._tables[block]
        self._tables[block] = before + 1
        if before == 0:
            self.live += 1
        elif before == 1:
            self.live -= 1
            self.shared += 1

    def detach(self, block: int) -> None:
        """`block` left a table."""
        before = self._tables[block]
        self._tables[block] = before - 1
        if before == 1:
            self.live -= 1
        elif before == 2:
            self.shared -= 1
            self.live += 1

    def snapshot(
        self, pool: BlockPool, *, watermark_blocks: int, tail_waste_tokens: int, block_size: int, time: float
    ) -> Ledger:
        """The counts as they were kept, O(1). The reserve takes free blocks first, then cached ones."""
        reserved_free = min(watermark_blocks, pool.num_free)
        reserved_cached = min(watermark_blocks - reserved_free, pool.num_cached)
        return Ledger(
            free=pool.num_free - reserved_free,
            live=self.live,
            cached=pool.num_cached - reserved_cached,
            shared=self.shared,
            reserved=reserved_free + reserved_cached,
            leaked=pool.num_used - self.live - self.shared,
            tail_waste_tokens=tail_waste_tokens,
            block_size=block_size,
            time=time,
        )

    def check_integrity(self, pool: BlockPool, tables: Mapping[int, int]) -> None:
        """Compare with `tables` (block -> tables it is in, counted from the tables themselves) and the pool.

        Raises IntegrityError when a count or a reference is off; a leaked block is such a case.
        """
        for block in range(pool.num_blocks):
            listed, kept, refs = tables.get(block, 0), self._tables[block], pool.ref_count(block)
            if listed != kept:
                raise IntegrityError(f"block {block} is in {listed} tables, but {kept} were counted")
            if refs > 0 and not listed:
                raise IntegrityError(f"block {block} has {refs} references but is in no block table (leaked)")
            if refs != listed:
                raise IntegrityError(f"block {block} has {refs} references but is in {listed} block tables")


def classify(pool: BlockPool, tables: Mapping[int, int], watermark_blocks: int) -> list[BlockState]:
    """The state of each block by id, from the pool's places and the tables alone: no running count is used. O(n)."""
    states: list[BlockState] = ["leaked"] * pool.num_blocks
    for block, count in tables.items():
        states[block] = "live" if count == 1 else "shared"
    idle = [*pool.free_order(), *pool.cached_order()]
    cached_from = pool.num_free
    for position, block in enumerate(idle):
        states[block] = "free" if position < cached_from else "cached"
    for block in _reserved(idle[:cached_from], idle[cached_from:], watermark_blocks):
        states[block] = "reserved"
    return states


def _reserved(free: list[int], cached: list[int], watermark_blocks: int) -> list[int]:
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
