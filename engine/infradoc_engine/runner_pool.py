"""The KV pool of a runner with its host tier: how both change between two steps, and what is left when memory is short.

No lock: one engine thread calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import torch

from infradoc_engine.allocation import give_back, refusal
from infradoc_engine.budget import MemoryBudget
from infradoc_engine.graph_keeper import GraphKeeper
from infradoc_engine.kv_cache import BlockMoves, KVCache
from infradoc_engine.kv_host import HostTier
from infradoc_engine.memory import NotEnoughMemory, PoolLost


class RunnerPool:
    """Keeps the budget's account of KV and host memory, and the graphs over the pool, in step with every change."""

    def __init__(self, budget: MemoryBudget, graphs: GraphKeeper, block_size: int, num_blocks: int) -> None:
        """NotEnoughMemory when the allocator refuses the pool."""
        self._budget = budget
        self._graphs = graphs
        self.cache = self._allocate(block_size, num_blocks)
        self.host = HostTier(self.cache)

    # -- size --------------------------------------------------------------------------------------------------------

    def grow(self, num_blocks: int) -> None:
        """Enlarges the pool; contents stay. NotEnoughMemory leaves the old pool whole."""
        self._budget.check_growth(num_blocks, self.cache.block_size)
        self._change(num_blocks, self.cache.grow)

    def shrink(self, num_blocks: int) -> None:
        """Keeps the first `num_blocks` and gives the memory of the others back. NotEnoughMemory changes nothing."""
        self._change(num_blocks, self.cache.shrink)

    def _change(self, num_blocks: int, change: Callable[[int], None]) -> None:
        self._graphs.forget()
        try:
            with torch.inference_mode():
                change(num_blocks)
        except Exception as error:
            raise refusal(self._budget, error, "a KV pool", num_blocks * self.cache.block_size) from error
        finally:
            self._budget.kv_bytes = self.cache.num_bytes
            give_back(self._budget.device)

    def move(self, moves: BlockMoves) -> None:
        """Copies blocks (source, destination), all sources read first. NotEnoughMemory may leave them half copied."""
        try:
            with torch.inference_mode():
                self.cache.copy_blocks(moves)
        except Exception as error:
            raise refusal(self._budget, error, "moving KV blocks", len(moves) * self.cache.block_size) from error

    # -- another pool ------------------------------------------------------------------------------------------------

    def rebuild(self, block_size: int, num_blocks: int) -> None:
        """A new pool instead of the old one, whose contents are lost; the host tier is emptied with it.

        NotEnoughMemory brings a pool of the old shape back, without its contents; where somebody else took that memory,
        one as large as there is room for, which the sentence then says. PoolLost when a single request of max_model_len
        would not fit that: there is no pool then.
        """
        old = self.cache.block_size, self.cache.num_blocks
        host_bytes = self.host.num_bytes
        self._graphs.drop()
        self._release()  # both pools at once would need room for both
        try:
            self._use(block_size, num_blocks)
        except Exception as error:
            raise self._fall_back(*old, error) from error
        finally:
            # Without room it stays empty: that is no reason to undo the pool, preempted requests are computed again.
            if self.cache.num_blocks:
                with suppress(NotEnoughMemory):
                    self.set_host_blocks(self.host_blocks_for(host_bytes))

    def _fall_back(self, block_size: int, old_blocks: int, error: Exception) -> Exception:
        """A pool of the old shape or the largest below it that fits; what to raise for `error` then."""
        least = min(old_blocks, -(-self._budget.limits.max_model_len // block_size))
        for blocks in _sizes(old_blocks, least):
            self._release()
            with suppress(NotEnoughMemory):
                self._use(block_size, blocks)
                return error if blocks == old_blocks else self._smaller(error, block_size, old_blocks, blocks)
        self.host.resize(0)
        self._budget.allow_host(0)
        return PoolLost(
            f"No memory for any KV pool: neither the new one, nor the old one of {old_blocks * block_size} tokens, nor "
            f"the {least * block_size} tokens of a single request of max_model_len fit any more; free memory and "
            "restart the server.",
            self._budget.account(),
        )

    def _smaller(self, error: Exception, block_size: int, old_blocks: int, blocks: int) -> NotEnoughMemory:
        return NotEnoughMemory(
            f"{error} The old pool of {old_blocks * block_size} tokens found no room again either: the pool has "
            f"{blocks * block_size} tokens now.",
            self._budget.account(),
        )

    def _release(self) -> None:
        self.cache.release()
        self._budget.kv_bytes = 0
        give_back(self._budget.device)

    def _use(self, block_size: int, num_blocks: int) -> None:
        with torch.inference_mode():
            self.cache = self._allocate(block_size, num_blocks)
        self.host.attach(self.cache)
        self._budget.allow_host(self.host.num_bytes)
        self._graphs.renew(self.cache)

    def _allocate(self, block_size: int, num_blocks: int) -> KVCache:
        budget = self._budget
        try:
            cache = KVCache(budget.config, num_blocks, block_size, budget.dtype, budget.device)
        except Exception as error:
            raise refusal(budget, error, "the KV pool", num_blocks * block_size) from error
        budget.kv_bytes = cache.num_bytes
        return cache

    # -- the host tier -----------------------------------------------------------------------------------------------

    def host_blocks_for(self, num_bytes: int) -> int:
        """Whole blocks in `num_bytes` of host memory."""
        return num_bytes // self.host.block_bytes

    def set_host_blocks(self, num_blocks: int) -> None:
        """Size of the host tier; contents of the blocks that stay are kept. NotEnoughMemory leaves the old size."""
        before, block_bytes = self.host.num_blocks, self.host.block_bytes
        self._budget.check_host(num_blocks * block_bytes)
        self._budget.allow_host(max(num_blocks, before) * block_bytes)
        try:
            self.host.resize(num_blocks)
        except Exception as error:
            raise refusal(self._budget, error, "a swap space", num_blocks * self.cache.block_size) from error
        finally:
            self._budget.allow_host(self.host.num_bytes)


def _sizes(most: int, least: int) -> Iterator[int]:
    """From `most` down to `least`, a quarter less each time: a refused attempt costs a moment."""
    while True:
        yield most
        if most <= least:
            return
        most = max(least, most * 3 // 4)
