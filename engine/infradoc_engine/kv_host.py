"""The host tier of the KV pool: where the blocks of swapped requests wait."""

from __future__ import annotations

import torch

from infradoc_engine.kv_cache import BlockMoves, KVCache
from infradoc_engine.kv_pages import empty_pages


class HostTier:
    """One tensor per host block, [2 * num_layers, num_kv_heads, block_size, head_dim]: a size changes without copies.

    Pinned where the pool is on a GPU, so that transfers run at the speed of the bus. All copies are in the order of the
    device's stream, as the steps are: a block that is swapped out may be written again by the step that follows.
    """

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache
        self._num_layers = len(cache.layers)
        self._blocks: list[torch.Tensor] = []
        self.bytes_out = 0
        self.bytes_in = 0

    @property
    def num_blocks(self) -> int:
        return len(self._blocks)

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all layers, on either side."""
        heads, tokens, dim = self._cache.block_shape
        return 2 * self._num_layers * heads * tokens * dim * self._cache.dtype.itemsize

    @property
    def num_bytes(self) -> int:
        return self.num_blocks * self.block_bytes

    def resize(self, num_blocks: int) -> None:
        """Contents of the blocks that stay are kept. What the allocator raises leaves the old size."""
        before = self.num_blocks
        del self._blocks[num_blocks:]
        try:
            while len(self._blocks) < num_blocks:
                self._blocks.append(self._new_block())
        except BaseException:
            del self._blocks[before:]
            raise

    def _new_block(self) -> torch.Tensor:
        cache = self._cache
        shape = (2 * self._num_layers, *cache.block_shape)
        if cache.device.type == "cuda":
            return torch.empty(shape, dtype=cache.dtype, pin_memory=True)
        return empty_pages(shape, cache.dtype, torch.device("cpu"))

    def attach(self, cache: KVCache) -> None:
        """Serve another pool; the host blocks, whose shape may no longer fit, are given back."""
        self._cache = cache
        self._blocks.clear()

    def swap_out(self, moves: BlockMoves) -> None:
        """Copy (device block, host block)."""
        parts = [part for pair in self._cache.layers for part in pair]
        for device_block, host_block in moves:
            rows = [part[device_block] for part in parts]
            if self._cache.device.type == "cuda":
                self._blocks[host_block].copy_(torch.stack(rows), non_blocking=True)
            else:
                torch.stack(rows, out=self._blocks[host_block])
        self.bytes_out += len(moves) * self.block_bytes

    def swap_in(self, moves: BlockMoves) -> None:
        """Copy (host block, device block)."""
        parts = [part for pair in self._cache.layers for part in pair]
        for host_block, device_block in moves:
            rows = self._blocks[host_block].to(self._cache.device, non_blocking=True)
            for index, part in enumerate(parts):
                part[device_block].copy_(rows[index])
        self.bytes_in += len(moves) * self.block_bytes
