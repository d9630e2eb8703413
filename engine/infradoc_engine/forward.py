"""Scheduled requests to batch tensors, and one pass of the model over them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from infradoc_engine.core.scheduler.output import ScheduledRequest
from infradoc_engine.kv_cache import KVCache
from infradoc_engine.models.llama import LlamaModel
from infradoc_kernels import ops


def forward(
    model: LlamaModel, scheduled: Sequence[ScheduledRequest], cache: KVCache, num_layers: int | None = None
) -> torch.Tensor:
    """Logits [rows that sample, vocab_size], float32; KV goes into `cache`. `num_layers`: through the first alone."""
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    sample_rows: list[int] = []
    size = cache.block_size
    for request in scheduled:
        table, stop = request.block_table, request.start + len(request.token_ids)
        tokens += request.token_ids
        positions += range(request.start, stop)
        slots += [table[p // size] * size + p % size for p in range(request.start, stop)]
        if request.samples:
            sample_rows.append(len(tokens) - 1)
    num_kv_heads, _, head_dim = cache.block_shape
    plan = ops.plan_attention(
        [s.block_table for s in scheduled],
        [len(s.token_ids) for s in scheduled],
        [s.start + len(s.token_ids) for s in scheduled],
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        block_size=size,
        dtype=cache.dtype,
        device=cache.device,
    )
    device = cache.device
    step = model.step(_ids(positions, device), _ids(slots, device), size, plan)
    return model.forward(_ids(tokens, device), step, cache.layers[:num_layers], _ids(sample_rows, device), num_layers)


def _ids(values: list[int], device: torch.device) -> torch.Tensor:
    if device.type == "cuda":  # pinned and not waited for: the host runs ahead of the device
        return torch.tensor(values, dtype=torch.int64, pin_memory=True).to(device, non_blocking=True)
    return torch.tensor(values, dtype=torch.int64, device=device)
