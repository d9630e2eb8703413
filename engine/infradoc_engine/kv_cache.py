"""The tensors of the paged KV pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from infradoc_engine.kv_pages import empty_pages
from infradoc_engine.refusals import is_out_of_memory
from infradoc_engine.weights.config import ModelConfig

Pair = tuple[torch.Tensor, torch.Tensor]
BlockMoves = Sequence[tuple[int, int]]  # (source block, destination block)


def bytes_per_token(config: ModelConfig, dtype: torch.dtype) -> int:
    """Bytes of keys and values of one token over all layers."""
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * dtype.itemsize


class KVCache:
    """Per layer a pair (keys, values), each [num_blocks, num_kv_heads, block_size, head_dim].

    The head comes before the token so that the blocks of one row gather straight into the operands of a batched
    matmul. The memory is not cleared: attention never reads a slot that was not written.
    """

    def __init__(
        self, config: ModelConfig, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self._shape = (config.num_kv_heads, block_size, config.head_dim)
        self.dtype, self.device = dtype, device
        self.layers = [self._pair(num_blocks) for _ in range(config.num_layers)]

    def _pair(self, num_blocks: int) -> Pair:
        k, v = (empty_pages((num_blocks, *self._shape), self.dtype, self.device) for _ in range(2))
        return k, v

    @property
    def block_shape(self) -> tuple[int, int, int]:
        """[num_kv_heads, block_size, head_dim] of one block of one part."""
        return self._shape

    @property
    def num_bytes(self) -> int:
        return sum(part.numel() * part.element_size() for pair in self.layers for part in pair)

    def grow(self, num_blocks: int) -> None:
        """Makes room for `num_blocks` in all, contents kept. Layer by layer: allocate, copy, free the old tensors.

        Raises ValueError when that is fewer than now, and whatever the allocator raises when memory ends; the pool
        then still serves its old number of blocks.
        """
        if num_blocks < self.num_blocks:
            raise ValueError(f"the KV pool has {self.num_blocks} blocks and cannot shrink to {num_blocks} by growing")
        self._reserve(num_blocks)
        try:
            self._replace_layers(lambda old: self._enlarged(old, num_blocks))
        except BaseException:
            self._cut(self.num_blocks)
            raise
        self.num_blocks = num_blocks

    def shrink(self, num_blocks: int) -> None:
        """Keeps the first `num_blocks` with their contents and gives the memory of the others back, layer by layer.

        Each new layer is allocated before its old one is freed, so the peak is one small layer above the old pool.
        Raises ValueError for a size that is no reduction, and what the allocator raises for the first layer, with
        nothing changed. A later layer has the memory of the one before it; where somebody else was quicker, it keeps
        its own and serves the first blocks of it.
        """
        if not 0 < num_blocks <= self.num_blocks:
            raise ValueError(f"the KV pool has {self.num_blocks} blocks and cannot shrink to {num_blocks}")
        self.layers[0] = self._reduced(self.layers[0], num_blocks)
        self.num_blocks = num_blocks
        try:
            self._replace_layers(lambda old: self._reduced(old, num_blocks), first=1)
        except Exception as error:
            self._cut(num_blocks)
            if not is_out_of_memory(error):
                raise

    def release(self) -> None:
        """Gives all memory back; no block is left."""
        self.layers.clear()
        self.num_blocks = 0

    def _replace_layers(self, make: Callable[[Pair], Pair], first: int = 0) -> None:
        for index in range(first, len(self.layers)):  # by index: a loop variable would keep each old pair too long
            self.layers[index] = make(self.layers[index])

    def _reserve(self, num_blocks: int) -> None:
        """Asks the allocator for all that growing takes at its peak and gives it back: a refusal then costs nothing."""
        extra = num_blocks - self.num_blocks
        values = 2 * self._shape[0] * self._shape[1] * self._shape[2] * (extra * len(self.layers) + self.num_blocks)
        empty_pages((values,), self.dtype, self.device)

    def _enlarged(self, old: Pair, num_blocks: int) -> Pair:
        pair = self._pair(num_blocks)
        for new_part, old_part in zip(pair, old, strict=True):
            new_part[: old_part.shape[0]].copy_(old_part)
        return pair

    def _reduced(self, old: Pair, num_blocks: int) -> Pair:
        pair = self._pair(num_blocks)
        for new_part, old_part in zip(pair, old, strict=True):
            new_part.copy_(old_part[:num_blocks])
        return pair

    def _cut(self, num_blocks: int) -> None:
        """After a change that stopped half-way: layers that are larger than the pool serve their first blocks."""
        for index, (k, v) in enumerate(self.layers):
            self.layers[index] = (k[:num_blocks], v[:num_blocks])

    def copy_blocks(self, copies: BlockMoves) -> None:
        """Copies blocks (source, destination), all sources read before any destination is written."""
        if not copies:
            return
        sources = self.block_ids([source for source, _ in copies])
        targets = self.block_ids([target for _, target in copies])
        for pair in self.layers:
            for part in pair:
                part.index_copy_(0, targets, part.index_select(0, sources))

    def block_ids(self, blocks: list[int]) -> torch.Tensor:
        """int64 [len(blocks)] on the pool's device."""
        return torch.tensor(blocks, dtype=torch.int64, device=self.device)
