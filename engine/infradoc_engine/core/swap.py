"""KV on its way between device and host: who has a host copy, and which device blocks a step under way copies.

The rule that makes a lost step harmless: host blocks that a swap-in reads stay held until the step is confirmed, and
host blocks that a swap-out writes count for nothing until then. So whichever copies were not made, one side is whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from infradoc_engine.core.block_pool import BlockPool
from infradoc_engine.core.errors import StepUnderWay
from infradoc_engine.core.host_pool import HostPool


@dataclass(frozen=True, slots=True)
class InFlight:
    """Device blocks that a step under way copies and that belong to nobody else, by the place where they are."""

    free: int = 0
    cached: int = 0
    live: int = 0

    @property
    def idle(self) -> int:
        """Those that the pool could hand out."""
        return self.free + self.cached


_NONE = InFlight()


class SwapSpace:
    """The host pool, and the swaps of the step under way."""

    def __init__(self, host_blocks: int = 0) -> None:
        self.pool = HostPool(host_blocks)
        self._sources: set[int] = set()  # device blocks
        self._destinations: set[int] = set()
        self._returning: set[str] = set()  # requests with a swap-in under way; they keep their host blocks
        self._step_under_way = False

    # --- the step under way ---

    def begin_step(self) -> None:
        """A step was handed out: until `end_step` a runner may read and write the blocks it names."""
        self._step_under_way = True

    def end_step(self) -> None:
        """It is done, or given up; each swap-in was dropped (confirmed) or stays before."""
        self._step_under_way = False
        if self._sources or self._destinations:
            self._sources.clear()
            self._destinations.clear()

    def require_no_step(self, what: str) -> None:
        """Raise StepUnderWay, naming `what` was asked for."""
        if self._step_under_way:
            raise StepUnderWay(f"{what} must wait for the end of the step under way: call it between two steps")

    # --- swaps ---

    @property
    def num_swapped(self) -> int:
        """Requests whose KV is in host memory alone."""
        return self.pool.num_owners - len(self._returning)

    def has(self, request_id: str) -> bool:
        """Whether there is a host copy, confirmed or about to be made; also while it is being swapped in."""
        return self.pool.holds(request_id)

    def out(self, request_id: str, blocks: list[int]) -> list[tuple[int, int]] | None:
        """Host blocks for these device blocks: (device, host) pairs to copy in this step. None: no room."""
        host = self.pool.take(request_id, len(blocks))
        if host is None:
            return None
        self._sources.update(blocks)
        return list(zip(blocks, host, strict=True))

    def back(self, request_id: str, blocks: list[int], skip: int) -> list[tuple[int, int]]:
        """Pairs (host, device) to copy in this step; `skip` blocks at the start were found on the device.

        `blocks` may be longer than what was swapped: the rest is for tokens that are yet to be computed.
        """
        host = self.pool.held(request_id)
        pairs = list(zip(host[skip:], blocks[skip:], strict=False))
        self._destinations.update(block for _, block in pairs)
        self._returning.add(request_id)
        return pairs

    def drop(self, request_id: str) -> int:
        """Free the host blocks of a request; how many, 0 when it has none."""
        self._returning.discard(request_id)
        return self.pool.release(request_id)

    def stays(self, request_id: str) -> None:
        """The swap-in under way is given up; the host copy is whole and waits for another one."""
        self._returning.discard(request_id)

    # --- accounts ---

    def reserved(self, block: int, *, idle: bool) -> bool:
        """Whether `block` is held by a swap under way; a source that was handed out again is its new owner's."""
        return block in self._destinations or (idle and block in self._sources)

    def in_flight(self, pool: BlockPool) -> InFlight:
        """Count the blocks that `reserved` is true for; O(blocks swapped in the step under way)."""
        if not self._sources and not self._destinations:
            return _NONE
        free = cached = live = 0
        for block in self._sources | self._destinations:
            if pool.ref_count(block):
                live += block in self._destinations
            elif pool.hash_of(block) is None:
                free += 1
            else:
                cached += 1
        return InFlight(free, cached, live)
