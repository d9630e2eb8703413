"""Over a dropped connection: the screen never waits for a server that hangs, and says how old its figures are."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from infradoc.config import Config, TargetConfig
from infradoc.fleet.watcher import TargetWatcher
from infradoc.tui.app import DoctorApp
from infradoc.tui.screens.fleet import FleetScreen
from infradoc.tui.screens.target import TargetScreen
from infradoc.tui.widgets.bars import TopBar
from infradoc.tui.widgets.panel import Panel
from infradoc_rules.catalog import Catalog

Settle = Callable[[Any], Awaitable[None]]


@pytest.fixture
def watch(server: Any, catalog: Catalog) -> Iterator[Callable[[], TargetWatcher]]:
    """A watcher of the fake server, ten looks a second."""
    made: list[TargetWatcher] = []

    def start() -> TargetWatcher:
        config = Config({"t": TargetConfig(url=server.url, host=False)})
        made.append(TargetWatcher("t", config, catalog, period=0.1))
        made[-1].start()
        return made[-1]

    yield start
    for watcher in made:
        watcher.stop(8.0)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come true")


def top(app: DoctorApp) -> str:
    return str(app.screen.query_one(TopBar).render())


def test_a_server_that_dies_is_stale_and_comes_back(
    server: Any, vllm_page: bytes, watch: Callable[[], TargetWatcher], settle: Settle
) -> None:
    server.page("/metrics", vllm_page)
    app = DoctorApp([watch()], refresh_seconds=0.1)

    async def run() -> None:
        async with app.run_test(size=(140, 45)) as pilot:
            await until(lambda: "vllm" in top(app))
            server.page("/metrics", b"", status=503)
            await until(lambda: "stale" in top(app))
            await settle(pilot)
            assert any(mark.kind == "lost" for mark in app.screen.painted.marks)
            server.page("/metrics", vllm_page)
            await until(lambda: "stale" not in top(app))

    asyncio.run(run())


def test_keys_work_while_a_server_hangs(server: Any, watch: Callable[[], TargetWatcher]) -> None:
    entered, release = threading.Event(), threading.Event()

    def hang(request: Any) -> None:
        entered.set()
        release.wait(30)
        request.close_connection = True

    server.routes["/metrics"] = hang
    app = DoctorApp([watch()], refresh_seconds=0.1)

    async def run() -> None:
        async with app.run_test(size=(140, 45)) as pilot:
            await until(entered.is_set)
            await until(lambda: "unknown" in top(app))
            assert isinstance(app.screen, TargetScreen)
            await pilot.press("4", "m", "m", "4", "escape")
            assert isinstance(app.screen, FleetScreen) and not release.is_set()
            await until(lambda: "first look under way" in str(app.screen.table.get_row_at(0)))
            await pilot.press("q")

    try:
        asyncio.run(run())
    finally:
        release.set()
    assert app.return_code == 0


def test_pause_holds_a_live_target_and_goes_on(
    server: Any, vllm_page: bytes, watch: Callable[[], TargetWatcher], settle: Settle
) -> None:
    pages = [vllm_page]
    server.page("/metrics", lambda: pages[0])
    watcher = watch()
    app = DoctorApp([watcher], refresh_seconds=0.1)

    async def run() -> None:
        async with app.run_test(size=(140, 45)) as pilot:
            await until(lambda: "vllm" in top(app))
            await pilot.press("p")
            await settle(pilot)
            held, before = app.moment(watcher), app.state_of(watcher)
            assert "PAUSED" in top(app)
            looks = watcher.state.looks
            await until(lambda: watcher.state.looks > looks + 3)  # the watch itself goes on
            await pilot.resize_terminal(100, 30)
            await settle(pilot)
            assert app.moment(watcher) == held and app.state_of(watcher) is before and app.screen.painted.now == held
            await pilot.press("p")
            await until(lambda: "PAUSED" not in top(app) and app.screen.painted.now > held)

    asyncio.run(run())


def test_another_engine_has_no_block_map_and_the_panel_says_so(
    server: Any, vllm_page: bytes, watch: Callable[[], TargetWatcher]
) -> None:
    server.page("/metrics", vllm_page)
    app = DoctorApp([watch()], refresh_seconds=0.1)

    async def run() -> None:
        async with app.run_test(size=(140, 45)):
            panel = app.screen.query_one("#panel-5", Panel)
            await until(lambda: "this server has none" in " ".join(panel.text.split()) and "KV in use" in panel.text)

    asyncio.run(run())
    assert not [path for path, _ in server.requests if path.startswith("/admin")]
