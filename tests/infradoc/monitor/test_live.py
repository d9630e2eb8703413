"""The watch: even distances, no longer than asked, and no waiting for a hopeless server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infradoc.config import Config, TargetConfig
from infradoc.monitor.attach import attach
from infradoc.monitor.live import watch
from infradoc.monitor.loop import Monitor
from infradoc_rules.catalog import Catalog

pytestmark = pytest.mark.usefixtures("clean_environment")


class Clock:
    """Time that passes only when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.looks: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def run(url: str, seconds: float, cost: float = 0.0) -> tuple[list[float], float]:
    """Times of the looks, and how long the watch says it took."""
    clock = Clock()
    monitor = Monitor(attach("t", Config(targets={"t": TargetConfig(url=url, host=False)})), Catalog(()))
    tick = monitor.tick

    def slow_tick(now: float | None = None) -> Any:
        clock.looks.append(clock.now)
        clock.now += cost
        return tick(now)

    monitor.tick = slow_tick  # type: ignore[method-assign]
    taken = watch(monitor, seconds, None, clock, clock.sleep)
    monitor.close()
    return clock.looks, taken


def test_one_look_a_second_for_the_time_asked(server: Any, vllm_page: bytes) -> None:
    server.page("/metrics", vllm_page)
    looks, taken = run(server.url, 5.0)
    assert looks == [1000.0, 1001.0, 1002.0, 1003.0, 1004.0, 1005.0] and taken == 5.0


def test_slow_looks_are_not_followed_by_a_burst(server: Any, vllm_page: bytes) -> None:
    server.page("/metrics", vllm_page)
    looks, _ = run(server.url, 6.0, cost=1.5)
    assert looks == [1000.0, 1001.5, 1003.0, 1004.5, 1006.0]


def test_hopeless_servers_are_left_early(server: Any, closed_port: int, tmp_path: Path) -> None:
    assert len(run(f"http://127.0.0.1:{closed_port}", 30.0)[0]) == 3
    server.page("/metrics", b"", status=401)
    assert len(run(server.url, 30.0)[0]) == 1
