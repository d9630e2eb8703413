"""One step's requests as flat index tensors: what the kernels that read the paged cache in place need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(slots=True)
class PagedBatch:
    """The part of a step's attention that is the same in all layers. Requests stand in the order of their rows in q.

    Block ids are int32 here and become int64 where a kernel multiplies them with a stride: block id times stride passes
    2^31 in large pools.
    """

    block_tables: torch.Tensor  # int32 [num_requests, max_blocks], rows padded with 0
    query_starts: torch.Tensor  # int32 [num_requests + 1], first row in q of each request
    context_lens: torch.Tensor  # int32 [num_requests], tokens in the cache, this step's queries included
    # Both lists may end in -1: places of a captured launch that this step leaves unused.
    decode_requests: torch.Tensor  # int32, requests with one query
    prefill_requests: torch.Tensor  # int32, requests with more
    max_query_len: int
    max_context_len: int
    window: int = 0  # 0: all of the context; w: a query at position p sees keys j with p - w < j <= p
    # Over the decode requests alone, to cut their contexts well. 0: not known, all are as long as max_context_len.
    max_decode_len: int = 0
    decode_tokens: int = 0
    captured: bool = False  # for a CUDA graph: replayed over contexts of any length up to max_context_len


def plan_paged_batch(
    block_tables: Sequence[Sequence[int]],
    query_lens: Sequence[int],
    context_lens: Sequence[int],
    *,
    block_size: int,
    device: torch.device | str = "cpu",
    window: int = 0,
) -> PagedBatch:
    """Plans one step.

    `block_tables[i]` has at least ceil(context_lens[i] / block_size) block ids; `context_lens[i]` counts all tokens
    whose keys are in the cache, this step's query_lens[i] included. Raises ValueError when they do not fit together.
    """
    if not len(block_tables) == len(query_lens) == len(context_lens):
        raise ValueError(
            f"{len(block_tables)} block tables, {len(query_lens)} query, {len(context_lens)} context lengths"
        )
    if window < 0:
        raise ValueError(f"the sliding window is {window} tokens, it must be 0 (off) or more")
    width = max((-(-context // block_size) for context in context_lens), default=0)
    padded: list[list[int]] = []
    starts = [0]
    decodes: list[int] = []
    prefills: list[int] = []
    decode_lens = [n for queries, n in zip(query_lens, context_lens, strict=True) if queries == 1]
    for i, (table, query_len, context_len) in enumerate(zip(block_tables, query_lens, context_lens, strict=True)):
        if not 0 < query_len <= context_len <= len(table) * block_size:
            raise ValueError(
                f"request {i}: {query_len} queries, {context_len} tokens, {len(table)} blocks of {block_size}"
            )
        used = list(table[: -(-context_len // block_size)])
        padded.append(used + [0] * (width - len(used)))
        starts.append(starts[-1] + query_len)
        (decodes if query_len == 1 else prefills).append(i)

    def ints(values: Sequence[int] | Sequence[Sequence[int]]) -> torch.Tensor:
        # Pinned and not waited for: on a GPU the host is to run ahead of the device.
        on_gpu = torch.device(device).type == "cuda"
        return torch.tensor(values, dtype=torch.int32, pin_memory=on_gpu).to(device, non_blocking=on_gpu)

    return PagedBatch(
        ints(padded).view(len(padded), width),
        ints(starts),
        ints(context_lens),
        ints(decodes),
        ints(prefills),
        max(query_lens, default=0),
        max(context_lens, default=0),
        window,
        max(decode_lens, default=0),
        sum(decode_lens),
    )
