"""Host blocks: where the KV of preempted requests waits. Each block has one owner; nothing is shared or cached here."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from infradoc_engine.core.errors import IntegrityError


class HostPool:
    """Block ids 0 .. num_blocks - 1, the lowest free one first, so that the pool can shrink when little is held."""

    def __init__(self, num_blocks: int = 0) -> None:
        if num_blocks < 0:
            raise ValueError(f"a host pool cannot have {num_blocks} blocks")
        self._num_blocks = num_blocks
        self._free: list[int] = list(range(num_blocks))  # a heap
        self._held: dict[str, list[int]] = {}

    @property
    def num_blocks(self) -> int:
        """All host blocks; 0 when there is no host memory for swaps."""
        return self._num_blocks

    @property
    def num_free(self) -> int:
        """Blocks without an owner."""
        return len(self._free)

    @property
    def num_owners(self) -> int:
        """Requests that hold host blocks."""
        return len(self._held)

    @property
    def usage_ratio(self) -> float:
        """Share of the host blocks that is held; 0 when there are none."""
        return 1.0 - len(self._free) / self._num_blocks if self._num_blocks else 0.0

    def take(self, owner: str, count: int) -> list[int] | None:
        """`count` blocks for `owner`, who must hold none (IntegrityError); None, and no change, without the room."""
        if owner in self._held:
            raise IntegrityError(f"request {owner} has host blocks already")
        if count > len(self._free):
            return None
        self._held[owner] = [heappop(self._free) for _ in range(count)]
        return list(self._held[owner])

    def held(self, owner: str) -> list[int]:
        """The blocks of `owner` in the order of its tokens; empty when it has none. A copy."""
        return list(self._held.get(owner, ()))

    def holds(self, owner: str) -> bool:
        """Whether `owner` has any."""
        return owner in self._held

    def owners(self) -> list[str]:
        """Ids of the requests that hold blocks; a copy."""
        return list(self._held)

    def release(self, owner: str) -> int:
        """Free the blocks of `owner`; how many they were, 0 when it has none."""
        blocks = self._held.pop(owner, None)
        if blocks is None:
            return 0
        for block in blocks:
            heappush(self._free, block)
        return len(blocks)

    def owners_beyond(self, num_blocks: int) -> list[str]:
        """Ids of the requests that stand in the way of a pool of `num_blocks`."""
        return [owner for owner, blocks in self._held.items() if max(blocks, default=-1) >= num_blocks]

    def resize(self, num_blocks: int) -> None:
        """Grow or shrink. ValueError, and no change, for a negative size or when a block to be cut off is held."""
        if num_blocks < 0:
            raise ValueError(f"a host pool cannot have {num_blocks} blocks")
        beyond = self.owners_beyond(num_blocks)
        if beyond:
            raise ValueError(f"{len(beyond)} swapped requests hold host blocks beyond {num_blocks}, first {beyond[0]}")
        self._free = [block for block in self._free if block < num_blocks]
        self._free.extend(range(self._num_blocks, num_blocks))
        heapify(self._free)
        self._num_blocks = num_blocks

    def check_integrity(self) -> None:
        """Every block is free or held by one owner, once; IntegrityError names the first that is not. O(blocks)."""
        found = sorted([*self._free, *(block for blocks in self._held.values() for block in blocks)])
        for expected, block in enumerate(found):
            if block < expected:
                raise IntegrityError(f"host block {block} has two places")
            if block > expected:
                raise IntegrityError(f"host block {expected} is neither free nor held")
        if len(found) != self._num_blocks:
            raise IntegrityError(f"{len(found)} host blocks were found, but there are {self._num_blocks}")
