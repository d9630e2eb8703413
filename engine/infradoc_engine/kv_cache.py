"""The tensors of the paged KV pool."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from infradoc_engine.weights.config import ModelConfig


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
        self._dtype, self._device = dtype, device
        self.layers = [self._pair(num_blocks) for _ in range(config.num_layers)]

    def _pair(self, num_blocks: int) -> tuple[torch.Tensor, torch.Tensor]:
        k, v = (torch.empty((num_blocks, *self._shape), dtype=self._dtype, device=self._device) for _ in range(2))
        return k, v

    @property
    def num_bytes(self) -> int:
        return sum(part.numel() * part.element_size() for pair in self.layers for part in pair)

    def grow(self, num_blocks: int) -> None:
        """Makes room for `num_blocks` in all, contents kept. Layer by layer: allocate, copy, free the old tensors.

        Raises ValueError when that is fewer than now, and whatever the allocator raises when memory ends; the pool
        then still serves its old number of blocks.
        """
        if num_blocks < self.num_blocks:
            raise ValueError(f"the KV pool has {self.num_blocks} blocks and cannot shrink to {num_blocks}")
        self._reserve(num_blocks)
        try:
            for index, old in enumerate(self.layers):
                self.layers[index] = self._enlarged(old, num_blocks)
        except BaseException:
            self._shrink()
            raise
        self.num_blocks = num_blocks

    def _reserve(self, num_blocks: int) -> None:
        """Asks the allocator for all that growing takes at its peak and gives it back: a refusal then costs nothing."""
        extra = num_blocks - self.num_blocks
        values = 2 * self._shape[0] * self._shape[1] * self._shape[2] * (extra * len(self.layers) + self.num_blocks)
        torch.empty(values, dtype=self._dtype, device=self._device)

    def _enlarged(self, old: tuple[torch.Tensor, torch.Tensor], num_blocks: int) -> tuple[torch.Tensor, torch.Tensor]:
        pair = self._pair(num_blocks)
        for new_part, old_part in zip(pair, old, strict=True):
            new_part[: old_part.shape[0]].copy_(old_part)
        return pair

    def _shrink(self) -> None:
        """After a growth that failed half-way: layers that did grow serve their first blocks, as before."""
        for index, (k, v) in enumerate(self.layers):
            self.layers[index] = (k[: self.num_blocks], v[: self.num_blocks])

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copies blocks (source, destination), all sources read before any destination is written."""
        if not copies:
            return
        sources = torch.tensor([source for source, _ in copies], dtype=torch.int64, device=self._device)
        targets = torch.tensor([target for _, target in copies], dtype=torch.int64, device=self._device)
        for pair in self.layers:
            for part in pair:
                part.index_copy_(0, targets, part.index_select(0, sources))
