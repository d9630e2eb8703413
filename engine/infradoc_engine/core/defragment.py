"""Upkeep of the pool: which blocks leaked, and new places for the others, so that what is in use lies together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infradoc_engine.core.block_pool import BlockPool
from infradoc_engine.core.block_table import BlockTables
from infradoc_engine.core.clock import Clock
from infradoc_engine.core.ledger import BlockLedger
from infradoc_engine.core.request import Request


@dataclass(frozen=True, slots=True)
class LeakedBlock:
    """A block with a reference that no table accounts for."""

    block: int
    owner: str  # the request that had it last; empty when none ever did
    age_seconds: float  # since it was handed out to that request


@dataclass(frozen=True, slots=True)
class Defragmentation:
    """What `KVCacheManager.defragment` did; the tables say so already, the KV itself must follow.

    moves: (source, destination) block pairs to copy before the next step. A block may be a source and a destination:
    read all sources first, then write.
    """

    reclaimed: list[LeakedBlock]
    moves: list[tuple[int, int]]


def compaction(pool: BlockPool) -> list[int]:
    """The new id of each block: those in use get the lowest, then the cached ones, then the free ones.

    A block that is in its zone already stays, so that no more is copied than must be. O(num_blocks).
    """
    used = [block for block in range(pool.num_blocks) if pool.ref_count(block)]
    target = [-1] * pool.num_blocks
    start = 0
    for blocks in (used, sorted(pool.cached_order()), sorted(pool.free_order())):
        _place(blocks, start, target)
        start += len(blocks)
    return target


def _place(blocks: Sequence[int], start: int, target: list[int]) -> None:
    """Fill the zone of len(blocks) ids from `start` on with `blocks` (ascending)."""
    zone = range(start, start + len(blocks))
    inside = {block for block in blocks if block in zone}
    holes = iter([place for place in zone if place not in inside])
    for block in blocks:
        target[block] = block if block in inside else next(holes)


def moves_of(target: Sequence[int], pool: BlockPool) -> list[tuple[int, int]]:
    """The copies that `target` (see `compaction`) asks for; the pool must still have its old numbering."""
    free = set(pool.free_order())
    return [(block, place) for block, place in enumerate(target) if block != place and block not in free]


class Upkeep:
    """Works on pool, ledger and tables together. `KVCacheManager` is the door to it and says when it may be used."""

    def __init__(self, pool: BlockPool, ledger: BlockLedger, tables: BlockTables, clock: Clock) -> None:
        self._pool = pool
        self._ledger = ledger
        self._tables = tables
        self._clock = clock

    def leaked_blocks(self) -> list[LeakedBlock]:
        """Blocks with a reference that are in no table, by id."""
        now = self._clock.now()
        found = []
        for block in self._ledger.leaked(self._pool):
            owner, since = self._ledger.owner_of(block)
            found.append(LeakedBlock(block, owner, max(now - since, 0.0)))
        return found

    def reclaim_leaked(self) -> list[LeakedBlock]:
        """Free every leaked block; what they were."""
        leaked = self.leaked_blocks()
        for item in leaked:
            self._pool.reclaim(item.block)
        return leaked

    def leak(self, block_count: int, request: Request | None) -> list[int]:
        """Take references and forget them: on the last blocks of `request`, or on idle blocks."""
        if request is not None:
            blocks = request.block_table[-block_count:] if block_count > 0 else []
            for block in blocks:
                self._pool.touch(block)
            return blocks
        blocks = [self._pool.allocate() for _ in range(min(block_count, self._pool.num_available))]
        for block in blocks:
            self._ledger.note_owner(block, "", self._clock.now())
        return blocks

    def defragment(self) -> Defragmentation:
        """Reclaim, then renumber pool, ledger and tables alike."""
        reclaimed = self.reclaim_leaked()
        target = compaction(self._pool)
        moves = moves_of(target, self._pool)
        self._pool.relocate(target)
        self._ledger.relocate(target)
        self._tables.relocate(target)
        return Defragmentation(reclaimed, moves)
