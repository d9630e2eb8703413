"""Factories for the core: a scheduler over a small pool, and requests with known tokens."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from infradoc_engine.core.clock import VirtualClock
from infradoc_engine.core.kv_cache_manager import KVCacheManager
from infradoc_engine.core.request import Request
from infradoc_engine.core.scheduler.limits import SchedulerLimits
from infradoc_engine.core.scheduler.output import ScheduleOutput
from infradoc_engine.core.scheduler.scheduler import Scheduler


def _make_scheduler(
    num_blocks: int = 8,
    block_size: int = 4,
    *,
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 64,
    watermark: float = 0.0,
    max_model_len: int = 1000,
    chunked_prefill: bool = True,
    prefix_caching: bool = True,
    host_blocks: int = 0,
) -> Scheduler:
    """With `host_blocks`, victims are swapped."""
    clock = VirtualClock()
    cache = KVCacheManager(
        num_blocks,
        block_size,
        prefix_caching=prefix_caching,
        watermark=watermark,
        clock=clock,
        host_blocks=host_blocks,
    )
    limits = SchedulerLimits(
        max_num_seqs,
        max_num_batched_tokens,
        watermark,
        max_model_len,
        chunked_prefill,
        prefix_caching,
        "swap" if host_blocks else "recompute",
    )
    return Scheduler(limits, cache, clock)


def _make_requests(
    num_requests: int = 1, prompt_len: int = 10, max_tokens: int = 4, *, same_prompt: bool = False, prefix: str = "r"
) -> list[Request]:
    return [
        Request(f"{prefix}{i}", [(0 if same_prompt else 1000 * (i + 1)) + t for t in range(prompt_len)], max_tokens)
        for i in range(num_requests)
    ]


def _run_step(scheduler: Scheduler, token: Callable[[], int] | None = None) -> ScheduleOutput:
    """One step with made-up tokens, all different, and a full check of the accounts before and after the update."""
    output = scheduler.schedule()
    scheduler.cache.check_integrity()
    take = token or _run_step.tokens.__next__
    scheduler.update(output, {item.request_id: take() for item in output.scheduled if item.samples})
    scheduler.cache.check_integrity()
    return output


_run_step.tokens = count(1_000_000)


@pytest.fixture(scope="session")
def make_scheduler() -> Callable[..., Scheduler]:
    """make_scheduler(num_blocks=8, block_size=4, **limits) -> Scheduler on a virtual clock."""
    return _make_scheduler


@pytest.fixture(scope="session")
def make_requests() -> Callable[..., list[Request]]:
    """make_requests(3, prompt_len=10, max_tokens=4, same_prompt=False) -> requests r0, r1, ..."""
    return _make_requests


@pytest.fixture(scope="session")
def run_step() -> Callable[..., ScheduleOutput]:
    """run_step(scheduler) -> the output of one checked step."""
    return _run_step
