"""What every block of the pool is doing: six exclusive states, counted as they change and audited on demand."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from infradoc_engine.core.block_pool import BlockPool
from infradoc_engine.core.errors import IntegrityError
from infradoc_engine.core.swap import InFlight

BlockState = Literal["free", "live", "cached", "shared", "reserved", "leaked"]
BLOCK_STATES: tuple[BlockState, ...] = get_args(BlockState)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Blocks by state at one moment; the six sum to the pool.

    free: can be handed out, holds nothing. cached: can be handed out, holds content that a lookup finds. reserved: free
    or cached, but kept from admission by the watermark; or being copied to or from host memory by the step under way.
    live: in one block table. shared: in two or more. leaked: has a reference, but is in no table, so that nothing will
    ever give it back.
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
    """How many block tables each block is in, with running counts of blocks in one and in several.

    Also who had each block last and since when: without it a leaked block could not name its culprit. And when the
    block came into use: each of those who share it one after the other has it for a shorter time than that.
    """

    def __init__(self, num_blocks: int) -> None:
        self._tables = [0] * num_blocks
        self._owners: list[str] = [""] * num_blocks
        self._since = array("d", bytes(8 * num_blocks))
        self._taken = array("d", bytes(8 * num_blocks))
        self.live = 0
        self.shared = 0

    def grow(self, num_blocks: int) -> None:
        """Follow the pool to its new size."""
        more = num_blocks - len(self._tables)
        self._tables.extend([0] * more)
        self._owners.extend([""] * more)
        self._since.extend([0.0] * more)
        self._taken.extend([0.0] * more)

    def shrink(self, num_blocks: int) -> None:
        """Follow the pool to its new size."""
        del self._tables[num_blocks:], self._owners[num_blocks:], self._since[num_blocks:], self._taken[num_blocks:]

    def relocate(self, target: Sequence[int]) -> None:
        """Follow `BlockPool.relocate`."""
        tables, owners, since, taken = list(self._tables), list(self._owners), self._since[:], self._taken[:]
        for block, place in enumerate(target):
            self._tables[place], self._owners[place] = tables[block], owners[block]
            self._since[place], self._taken[place] = since[block], taken[block]

    def note_owner(self, block: int, owner: str, now: float) -> None:
        """`block` was handed out to `owner` at `now`, seconds of the engine's clock."""
        self._owners[block] = owner
        self._since[block] = self._taken[block] = now

    def owner_of(self, block: int) -> tuple[str, float]:
        """Who was handed `block` last, and when; ("", 0.0) when nobody ever was."""
        return self._owners[block], self._since[block]

    def taken(self, pool: BlockPool) -> list[float | None]:
        """When each block came into use, by id; None for one without a reference. O(num_blocks)."""
        return [taken if refs else None for taken, refs in zip(self._taken, pool.ref_counts(), strict=True)]

    def leaked(self, pool: BlockPool) -> list[int]:
        """Blocks with a reference that are in no table, ascending. O(1) when there are none, else O(num_blocks)."""
        if pool.num_used == self.live + self.shared:
            return []
        return [block for block, tables in enumerate(self._tables) if not tables and pool.ref_count(block)]

    def attach(self, block: int, owner: str, now: float) -> None:
        """`block` entered one more table: that of `owner`, at `now`."""
        self._owners[block] = owner
        self._since[block] = now
        before = self._tables[block]
        self._tables[block] = before + 1
        if before == 0:
            self.live += 1
            self._taken[block] = now
        elif before == 1:
            self.live -= 1
            self.shared += 1

    def detach(self, block: int, owner: str) -> None:
        """`block` left the table of `owner`, who is the last to have had it if it is in no other."""
        self._owners[block] = owner
        before = self._tables[block]
        self._tables[block] = before - 1
        if before == 1:
            self.live -= 1
        elif before == 2:
            self.shared -= 1
            self.live += 1

    def snapshot(
        self,
        pool: BlockPool,
        in_flight: InFlight,
        *,
        watermark_blocks: int,
        tail_waste_tokens: int,
        block_size: int,
        time: float,
    ) -> Ledger:
        """The counts as they were kept, O(1). The reserve takes free blocks first, then cached ones."""
        free, cached = pool.num_free - in_flight.free, pool.num_cached - in_flight.cached
        reserved_free = min(watermark_blocks, free)
        reserved_cached = min(watermark_blocks - reserved_free, cached)
        return Ledger(
            free=free - reserved_free,
            live=self.live - in_flight.live,
            cached=cached - reserved_cached,
            shared=self.shared,
            reserved=reserved_free + reserved_cached + in_flight.idle + in_flight.live,
            leaked=pool.num_used - self.live - self.shared,
            tail_waste_tokens=tail_waste_tokens,
            block_size=block_size,
            time=time,
        )

    def check_integrity(self, pool: BlockPool, tables: Mapping[int, int], *, leaks_allowed: bool = False) -> None:
        """Compare with `tables` (block -> tables it is in, counted from the tables themselves) and the pool.

        Raises IntegrityError when a count or a reference is off; one reference too many is such a case (a leak, or
        one to come) unless `leaks_allowed`.
        """
        for block in range(pool.num_blocks):
            listed, kept, refs = tables.get(block, 0), self._tables[block], pool.ref_count(block)
            if listed != kept:
                raise IntegrityError(f"block {block} is in {listed} tables, but {kept} were counted")
            if leaks_allowed and refs > listed:
                continue
            if refs > 0 and not listed:
                raise IntegrityError(f"block {block} has {refs} references but is in no block table (leaked)")
            if refs != listed:
                raise IntegrityError(f"block {block} has {refs} references but is in {listed} block tables")
