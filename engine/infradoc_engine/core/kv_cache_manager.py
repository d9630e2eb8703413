"""One door to the KV pool: blocks for a request at admission and while it grows, back at the end, and the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from infradoc_engine.core.block_map import classify, run_lengths
from infradoc_engine.core.block_pool import BlockPool
from infradoc_engine.core.block_table import BlockTables
from infradoc_engine.core.clock import Clock, MonotonicClock
from infradoc_engine.core.defragment import Defragmentation, LeakedBlock, Upkeep
from infradoc_engine.core.errors import IntegrityError
from infradoc_engine.core.ledger import BLOCK_STATES, BlockLedger, Ledger
from infradoc_engine.core.owner_map import Holders
from infradoc_engine.core.prefix_cache import PrefixCache
from infradoc_engine.core.request import Request
from infradoc_engine.core.swap import SwapSpace


@dataclass(frozen=True, slots=True)
class Allocation:
    """What `allocate` found and did."""

    num_hit_tokens: int  # need not be computed: their KV is in the table already
    block_copy: tuple[int, int] | None  # (source, destination) to be copied before the step writes any KV
    swap_in: Sequence[tuple[int, int]] = ()  # (host block, device block) to be copied before the step writes any KV


class KVCacheManager:
    """Owns the pool. Not thread-safe: one thread calls it, others read copies made on that thread.

    `watermark`: share of the blocks that admission leaves alone so that running requests can grow; 0 <= x < 1.
    `host_blocks`: blocks in host memory for requests that are swapped out.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        prefix_caching: bool = True,
        watermark: float = 0.0,
        clock: Clock | None = None,
        host_blocks: int = 0,
    ) -> None:
        if block_size < 1:
            raise ValueError(f"a block holds at least one token, not {block_size}")
        self.block_size = block_size
        self.pool = BlockPool(num_blocks)
        self._prefix = PrefixCache(self.pool, block_size, enabled=prefix_caching)
        self._ledger = BlockLedger(num_blocks)
        self._clock = clock or MonotonicClock()
        self._tables = BlockTables(self._ledger, block_size, self._clock)
        self._upkeep = Upkeep(self.pool, self._ledger, self._tables, self._clock)
        self.swaps = SwapSpace(host_blocks)
        self.watermark = watermark

    # --- settings, changeable between steps ---

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        return self.pool.num_blocks

    @property
    def watermark(self) -> float:
        """Share of the blocks kept from admission."""
        return self._watermark

    @watermark.setter
    def watermark(self, value: float) -> None:
        if not 0.0 <= value < 1.0:
            raise ValueError(f"watermark must be at least 0 and below 1, not {value}")
        self._watermark = value

    @property
    def watermark_blocks(self) -> int:
        """Blocks kept from admission. Rounded down, but 0.29 of 100 is 29 though the product is 28.999999999999996."""
        return int(self._watermark * self.num_blocks + 1e-9)

    @property
    def prefix_caching(self) -> bool:
        """Whether full blocks are shared by content; switching it off forgets all content, blocks in use stay."""
        return self._prefix.enabled

    @prefix_caching.setter
    def prefix_caching(self, value: bool) -> None:
        self._prefix.enabled = value

    def grow(self, num_blocks: int) -> None:
        """Raise the pool to `num_blocks` in all; the new blocks are free. ValueError when that is no growth."""
        self.pool.grow(num_blocks)
        self._ledger.grow(num_blocks)

    def shrink(self, num_blocks: int) -> None:
        """Cut the pool to `num_blocks`; cached blocks beyond are dropped.

        ValueError, and no change, when blocks in use do not fit, or lie beyond so that `defragment` must come first;
        StepUnderWay between `schedule` and its end.
        """
        self.swaps.require_no_step("shrinking the pool")
        self.pool.shrink(num_blocks)
        self._ledger.shrink(num_blocks)

    @property
    def host_blocks(self) -> int:
        """Blocks in host memory."""
        return self.swaps.pool.num_blocks

    @property
    def host_free_blocks(self) -> int:
        """Of these, without an owner."""
        return self.swaps.pool.num_free

    @property
    def host_usage_ratio(self) -> float:
        """Share of the host blocks that is held; 0 when there are none."""
        return self.swaps.pool.usage_ratio

    def set_host_blocks(self, num_blocks: int) -> None:
        """Change the size of the host pool.

        ValueError, and no change, when a swapped request holds a block beyond; StepUnderWay between `schedule` and its
        end. `Scheduler.set_host_blocks` makes room first.
        """
        self.swaps.require_no_step("changing the host pool")
        self.swaps.pool.resize(num_blocks)

    # --- blocks for requests ---

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that `num_tokens` need."""
        return -(-num_tokens // self.block_size)

    @property
    def usable_tokens(self) -> int:
        """Token places that a request alone in the pool could have: all but the leaked blocks."""
        return (self.num_blocks - self.num_leaked) * self.block_size

    @property
    def num_leaked(self) -> int:
        """Blocks with a reference that no table accounts for; O(1)."""
        return self.pool.num_used - self._ledger.live - self._ledger.shared

    def allocate(self, request: Request, *, use_reserve: bool = False) -> Allocation | None:
        """Places for all known tokens of `request`, in shared blocks if the prefix cache has them; None: it must wait.

        Sets `block_table` and `num_computed_tokens`. All blocks at once, though the prefill may take several steps:
        so a prefill that has begun never waits for blocks, and two of them cannot block each other.
        `use_reserve`: take blocks below the watermark too.
        """
        hits = self._prefix.match(request)
        num_tokens = request.num_tokens
        # On a full hit there is nothing to compute, hence no logits to sample from: the last token is computed again.
        # Its KV must not go to a block that others read or that a lookup finds, so that block gets a private copy.
        source = hits.pop() if len(hits) * self.block_size == num_tokens else None
        num_new = self.blocks_for(num_tokens) - len(hits)
        if not self._has_room(hits, num_new, use_reserve):
            return None
        for block in hits:
            self.pool.touch(block)
        if source is not None:
            self.pool.refresh(source)  # taken last: if it is, it is the destination too and nothing needs a copy
        blocks = hits + [self.pool.allocate() for _ in range(num_new)]
        self._tables.open(request, blocks, num_tokens)
        request.num_computed_tokens = len(hits) * self.block_size if source is None else num_tokens - 1
        copy = None if source is None or source == blocks[-1] else (source, blocks[-1])
        return Allocation(request.num_computed_tokens, copy)

    def _has_room(self, hits: list[int], num_new: int, use_reserve: bool) -> bool:
        room = self.pool.num_available - (0 if use_reserve else self.watermark_blocks)
        revived = sum(1 for block in hits if self.pool.ref_count(block) == 0)
        return num_new + revived <= room

    def peek_hit_tokens(self, request: Request) -> int:
        """Tokens of `request` that `allocate` would not have to compute if it was called now."""
        return min(len(self._prefix.match(request)) * self.block_size, request.num_tokens - 1)

    def append_slot(self, request: Request) -> bool:
        """Make sure that the next token to compute has a place, from the reserve too; False when no block is left.

        Asking twice for the same token changes nothing: a step that was lost can be asked for again.
        """
        needed = request.num_computed_tokens + 1
        if needed <= self._tables.held(request):
            return True
        if needed <= len(request.block_table) * self.block_size:
            self._tables.extend(request, None, needed)
            return True
        if not self.pool.num_available:
            return False
        self._tables.extend(request, self.pool.allocate(), needed)
        return True

    def commit(self, request: Request, start: int, stop: int) -> None:
        """The KV of positions [start, stop) is written: blocks that became full can be found from now on."""
        if start // self.block_size != stop // self.block_size:
            self._prefix.register(request, start, stop)

    def free(self, request: Request) -> None:
        """Give the blocks of `request` back; nothing happens if it has none. The last block goes first.

        So a prefix outlives what follows it, which could not be found without it.
        """
        for block in reversed(self._tables.close(request)):
            self.pool.release(block)

    def forget(self, request_id: str) -> None:
        """Drop what is kept of a finished request besides its blocks: its hash chain and its host blocks."""
        self._prefix.forget(request_id)
        self.swaps.drop(request_id)

    # --- swaps ---

    def is_swapped(self, request: Request) -> bool:
        """Whether what `request` computed is in host blocks, or will be at the end of the step under way."""
        return self.swaps.has(request.request_id)

    def swap_out(self, request: Request) -> list[tuple[int, int]] | None:
        """Give the blocks of `request` back; what it computed goes to host blocks.

        Returns (device, host) pairs to copy first in this step; None, and no change, when the host pool has no room or
        nothing is computed.

        `num_computed_tokens` stays. Blocks that others share are copied too: they may be gone when it comes back.
        """
        used = request.block_table[: self.blocks_for(request.num_computed_tokens)]
        pairs = self.swaps.out(request.request_id, used) if used else None
        if pairs is not None:
            self.free(request)
        return pairs

    def swap_in(self, request: Request, *, use_reserve: bool = False) -> Allocation | None:
        """As `allocate`, for a request that `swap_out` took away: its computed tokens come back as they were.

        Full blocks that the prefix cache has are shared instead of copied: the chained hash says that they hold the
        same tokens from the first on, and nothing is written below `num_computed_tokens`.
        """
        num_full = request.num_computed_tokens // self.block_size
        hits = self._prefix.match(request)[:num_full]
        num_new = self.blocks_for(request.num_tokens) - len(hits)
        if not self._has_room(hits, num_new, use_reserve):
            return None
        for block in hits:
            self.pool.touch(block)
        blocks = hits + [self.pool.allocate() for _ in range(num_new)]
        self._tables.open(request, blocks, request.num_tokens)
        return Allocation(0, None, self.swaps.back(request.request_id, blocks, len(hits)))

    def confirm_swap_in(self, request: Request) -> bool:
        """The step that swapped `request` in is done: the host copy goes, full blocks can be found from now on.

        False, and no change, when it was not swapped in.
        """
        if not self.swaps.drop(request.request_id):
            return False
        self.commit(request, 0, request.num_computed_tokens)
        return True

    # --- leaks and order ---

    def leaked_blocks(self) -> list[LeakedBlock]:
        """Blocks with a reference that no table accounts for, by id; O(1) when there are none."""
        return self._upkeep.leaked_blocks()

    def reclaim_leaked(self) -> list[LeakedBlock]:
        """Free every leaked block; what they were."""
        return self._upkeep.reclaim_leaked()

    def leak(self, block_count: int, request: Request | None = None) -> list[int]:
        """A fault, for tests of those who look for it: take references and forget them. Returns the blocks.

        With `request`, on the last `block_count` blocks of its table: they leak when it gives them back. Without, on
        idle blocks, which leak at once. Fewer when there are not so many.
        """
        return self._upkeep.leak(block_count, request)

    def defragment(self) -> Defragmentation:
        """Reclaim leaked blocks and move the others to low ids: in use first, then cached. O(num_blocks).

        Tables, hashes and eviction order are rewritten at once; the caller must carry out `moves` before the next
        step. Raises StepUnderWay between `schedule` and its end: the runner has the old ids.
        """
        self.swaps.require_no_step("defragmentation")
        return self._upkeep.defragment()

    # --- accounts ---

    @property
    def available_blocks(self) -> int:
        """Blocks that admission may hand out: free and cached ones above the watermark's reserve, none in flight."""
        return max(self.pool.num_available - self.swaps.in_flight(self.pool).idle - self.watermark_blocks, 0)

    @property
    def usage(self) -> float:
        """Share of the blocks that is not available to admission."""
        return 1.0 - self.available_blocks / self.num_blocks

    def ledger(self) -> Ledger:
        """Blocks by state as counted along the way, O(1); while a step swaps, O(blocks it swaps)."""
        return self._ledger.snapshot(
            self.pool,
            self.swaps.in_flight(self.pool),
            watermark_blocks=self.watermark_blocks,
            tail_waste_tokens=self._tables.tail_waste_tokens,
            block_size=self.block_size,
            time=self._clock.now(),
        )

    def audit(self) -> Ledger:
        """The ledger counted anew from tables and lists, O(num_blocks); IntegrityError when the kept one differs."""
        kept = self.ledger()
        found = Counter(classify(self.pool, self._tables.counts(), self.watermark_blocks, self.swaps))
        for state in BLOCK_STATES:
            if found[state] != getattr(kept, state):
                raise IntegrityError(f"{found[state]} blocks are {state}, but {getattr(kept, state)} were counted")
        return kept

    def block_map(self) -> list[tuple[str, int]]:
        """(state, blocks in a row) by block id, O(num_blocks)."""
        return run_lengths(classify(self.pool, self._tables.counts(), self.watermark_blocks, self.swaps))

    def holders(self) -> Holders:
        """Who holds each block and since when, as copies; O(num_blocks)."""
        names = self._tables.names(self.num_blocks)
        for block in self._ledger.leaked(self.pool):
            names[block] = self._ledger.owner_of(block)[0] or None
        return Holders(names, self._ledger.taken(self.pool), self._clock.now())

    def owners(self) -> dict[int, list[str]]:
        """Block id -> ids of the requests whose tables hold it."""
        return self._tables.owners()

    def check_integrity(self, *, leaks_allowed: bool = False) -> None:
        """Check pool, tables and counts against each other, O(num_blocks); raises IntegrityError at the first fault."""
        self.pool.check_integrity()
        self._tables.check_integrity()
        self.swaps.pool.check_integrity()
        self._ledger.check_integrity(self.pool, self._tables.counts(), leaks_allowed=leaks_allowed)
        self.audit()


def leak_text(cache: KVCacheManager) -> str:
    """What to tell whoever finds no room because of leaked blocks; one sentence."""
    which = f"{cache.num_leaked} of the {cache.num_blocks} blocks of the KV pool are leaked"
    return f"{which}: POST /admin/defragment gives them back."
