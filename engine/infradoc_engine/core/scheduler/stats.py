"""Counters of the scheduler; they only grow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

from infradoc_engine.core.request import FinishReason, PreemptReason


def _finished() -> dict[FinishReason, int]:
    return dict.fromkeys(get_args(FinishReason), 0)


def _preemptions() -> dict[PreemptReason, int]:
    return dict.fromkeys(get_args(PreemptReason), 0)


@dataclass(slots=True)
class SchedulerStats:
    """Tokens and swapped blocks are counted when their step is updated, so a lost step counts nothing.

    Each computed token is in exactly one of prompt_computed_tokens, output_computed_tokens and recomputed_tokens.
    """

    steps: int = 0  # with at least one token
    prompt_tokens: int = 0  # of requests at first admission, cached ones included
    prompt_computed_tokens: int = 0  # for the first time
    output_computed_tokens: int = 0  # for the first time: KV of sampled tokens
    recomputed_tokens: int = 0  # at positions that were computed, or found cached, before a preemption
    generation_tokens: int = 0  # sampled
    prefix_queried_tokens: int = 0  # prompt tokens looked up at first admission
    prefix_hit_tokens: int = 0  # of these, not computed
    resumed_hit_tokens: int = 0  # not computed again after a preemption, for the prefix cache had them
    swapped_out_requests: int = 0  # preemptions whose computed tokens went to host memory
    swapped_in_requests: int = 0  # of these, came back without computing them again
    swapped_out_blocks: int = 0  # copied, device to host
    swapped_in_blocks: int = 0  # copied, host to device; less than went out where the prefix cache had the content
    swaps_refused: int = 0  # victims recomputed in swap mode because the host pool had no room
    swaps_lost: int = 0  # swapped requests that had to recompute: lost step, smaller host pool, other KV pool
    pool_exhausted: int = 0  # requests ended because they alone had outgrown the pool
    finished: dict[FinishReason, int] = field(default_factory=_finished)
    preemptions: dict[PreemptReason, int] = field(default_factory=_preemptions)
