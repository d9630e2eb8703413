"""One door to the KV pool: blocks for a request at admission and while it grows, back at the end, and the ledger."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from infradoc_engine.core.block_pool import BlockPool
from infradoc_engine.core.block_table import BlockTables
from infradoc_engine.core.clock import Clock, MonotonicClock
from infradoc_engine.core.errors import IntegrityError
from infradoc_engine.core.ledger import BLOCK_STATES, BlockLedger, Ledger, classify, run_lengths
from infradoc_engine.core.prefix_cache import PrefixCache
from infradoc_engine.core.request import Request


@dataclass(frozen=True, slots=True)
class Allocation:
    """What `allocate` found and did."""

    num_hit_tokens: int  # need not be computed: their KV is in the table already
    block_copy: tuple[int, int] | None  # (source, destination) to be copied before the step writes any KV


class KVCacheManager:
    """Owns the pool. Not thread-safe: one thread calls it, others read copies made on that thread.

    `watermark`: share of the blocks that admission leaves alone so that running requests can grow; 0 <= x < 1.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        prefix_caching: bool = True,
        watermark: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        if block_size < 1:
            raise ValueError(f"a block holds at least one token, not {block_size}")
        self.block_size = block_size
        self.pool = BlockPool(num_blocks)
        self._prefix = PrefixCache(self.pool, block_size, enabled=prefix_caching)
        self._ledger = BlockLedger(num_blocks)
        self._tables = BlockTables(self._ledger, block_size)
        self._clock = clock or MonotonicClock()
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

    # --- blocks for requests ---

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that `num_tokens` need."""
        return -(-num_tokens // self.block_size)

    @property
    def usable_tokens(self) -> int:
        """Token places that a request alone in the pool could have: all but the leaked blocks."""
        leaked = self.pool.num_used - self._ledger.live - self._ledger.shared
        return (self.num_blocks - leaked) * self.block_size

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
        room = self.pool.num_available - (0 if use_reserve else self.watermark_blocks)
        revived = sum(1 for block in hits if self.pool.ref_count(block) == 0)
        if num_new + revived > room:
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
        """Drop what is remembered of a finished request besides its blocks."""
        self._prefix.forget(request_id)

    # --- accounts ---

    @property
    def available_blocks(self) -> int:
        """Blocks that admission may hand out: free and cached ones above the watermark's reserve."""
        return max(self.pool.num_available - self.watermark_blocks, 0)

    @property
    def usage(self) -> float:
        """Share of the blocks that is not available to admission."""
        return 1.0 - self.available_blocks / self.num_blocks

    def ledger(self) -> Ledger:
        """Blocks by state as counted along the way, O(1)."""
        return self._ledger.snapshot(
            self.pool,
            watermark_blocks=self.watermark_blocks,
            tail_waste_tokens=self._tables.tail_waste_tokens,
            block_size=self.block_size,
            time=self._clock.now(),
        )

    def audit(self) -> Ledger:
        """The ledger counted anew from tables and lists, O(num_blocks); IntegrityError when the kept one differs."""
        kept = self.ledger()
        found = Counter(classify(self.pool, self._tables.counts(), self.watermark_blocks))
        for state in BLOCK_STATES:
            if found[state] != getattr(kept, state):
                raise IntegrityError(f"{found[state]} blocks are {state}, but {getattr(kept, state)} were counted")
        return kept

    def block_map(self) -> list[tuple[str, int]]:
        """(state, blocks in a row) by block id, O(num_blocks)."""
        return run_lengths(classify(self.pool, self._tables.counts(), self.watermark_blocks))

    def owners(self) -> dict[int, list[str]]:
        """Block id -> ids of the requests whose tables hold it."""
        return self._tables.owners()

    def check_integrity(self) -> None:
        """Check pool, tables and counts against each other, O(num_blocks); raises IntegrityError at the first fault."""
        self.pool.check_integrity()
        self._tables.check_integrity()
        self._ledger.check_integrity(self.pool, self._tables.counts())
        self.audit()
