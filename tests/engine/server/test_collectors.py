"""What is read at scrape time says the same as the pages beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from infradoc_engine.core.kv_cache_manager import KVCacheManager
from infradoc_engine.core.scheduler.limits import SchedulerLimits
from infradoc_engine.core.scheduler.output import ScheduleOutput
from infradoc_engine.core.scheduler.scheduler import Scheduler
from infradoc_engine.engine import Engine
from infradoc_engine.jobs import TokenEvent
from infradoc_engine.metrics import EngineMetrics
from infradoc_engine.server.collectors import EngineCollector


class NoRunner:
    """Stands in for a model that is never asked."""

    num_blocks, num_host_blocks, block_size = 8, 0, 4

    def execute(self, output: ScheduleOutput, params: Mapping[str, Any]) -> dict[str, Any]:
        raise AssertionError("nothing is scheduled here")

    def release(self, request_id: str) -> None: ...

    def grow_kv(self, num_blocks: int) -> None: ...
    def shrink_kv(self, num_blocks: int) -> None: ...
    def move_blocks(self, moves: Sequence[tuple[int, int]]) -> None: ...
    def rebuild_kv(self, block_size: int, num_blocks: int) -> None: ...
    def set_host_blocks(self, num_blocks: int) -> None: ...


def ignore(events: Sequence[TokenEvent]) -> None:
    return


@pytest.mark.parametrize(("trouble", "ready"), [(None, 1), ("The event loop has been blocked for 12 s.", 0)])
def test_ready_is_what_health_says(trouble: str | None, ready: int) -> None:
    cache = KVCacheManager(8, 4)
    scheduler = Scheduler(SchedulerLimits(max_num_seqs=2, max_num_batched_tokens=8), cache)
    engine = Engine(scheduler, cache, NoRunner(), deliver=ignore, metrics=EngineMetrics())
    out: list[str] = []
    EngineCollector(engine, lambda: {"weights": 5}, lambda: trouble)(out)
    page = "".join(out)
    assert f"\nllm_engine_ready {ready}\n" in page
    assert "llm_kv_pool_tokens 32\n" in page and 'llm_device_memory_bytes{part="weights"} 5\n' in page
