"""Live targets in threads of their own: a real server that answers, hangs, dies and comes back."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infradoc.config import Config, TargetConfig
from infradoc.fleet.fleet import Fleet
from infradoc.fleet.watcher import TargetWatcher
from infradoc.monitor.attach import TargetError
from infradoc_rules.catalog import load_catalog

pytestmark = pytest.mark.usefixtures("clean_environment")
Wait = Callable[[Callable[[], bool], float], None]


def configured(**targets: dict[str, Any]) -> Config:
    return Config({name: TargetConfig(host=False, **more) for name, more in targets.items()})


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., TargetWatcher]]:
    monkeypatch.setenv("INFRADOC_STATE_DIR", str(tmp_path / "state"))
    made: list[TargetWatcher] = []

    def make(config: Config, **more: Any) -> TargetWatcher:
        made.append(TargetWatcher("t", config, load_catalog(), period=0.1, **more))
        made[-1].start()
        return made[-1]

    yield make
    for watcher in made:
        watcher.stop(2.0)


def test_a_page_becomes_a_state(
    server: Any, vllm_page: bytes, watching: Callable[..., TargetWatcher], wait_until: Wait
) -> None:
    server.page("/metrics", vllm_page)
    told: list[int] = []
    watcher = watching(configured(t={"url": server.url}), on_tick=lambda _, state: told.append(state.looks))
    wait_until(lambda: watcher.state.looks >= 3, 10.0)
    state = watcher.state
    assert (state.name, state.system, state.up, state.error) == ("t", "vllm", True, None)
    assert state.vitals["running"] is not None and state.vitals["waiting"] is not None
    assert state.stale_seconds(time.time()) is None and told[:3] == [1, 2, 3]
    with watcher.reading() as frame:
        (series,) = frame.select("llm_requests_running")
    assert len(series.times) >= 3


def test_a_dead_server_is_stale_with_its_age_and_comes_back(
    server: Any, vllm_page: bytes, watching: Callable[..., TargetWatcher], wait_until: Wait
) -> None:
    server.page("/metrics", vllm_page)
    watcher = watching(configured(t={"url": server.url}))
    wait_until(lambda: watcher.state.up, 10.0)
    server.page("/metrics", b"", status=503)
    wait_until(lambda: not watcher.state.up, 10.0)
    state = watcher.state
    assert not state.up and "503" in str(state.error) and state.status != "ok"
    assert state.stale_seconds(float(state.seen or 0) + 12.0) == 12.0
    server.page("/metrics", vllm_page)
    wait_until(lambda: watcher.state.up, 10.0)
    assert [mark.kind for mark in watcher.marks() if mark.kind in ("lost", "back")] == ["lost", "back"]


def test_a_server_that_hangs_holds_up_nobody(
    server: Any, watching: Callable[..., TargetWatcher], wait_until: Wait
) -> None:
    entered, release = threading.Event(), threading.Event()

    def hang(request: Any) -> None:
        entered.set()
        release.wait(20)
        request.close_connection = True

    server.routes["/metrics"] = hang
    watcher = watching(configured(t={"url": server.url}))
    assert entered.wait(10)
    with watcher.reading() as frame:  # the look is under way, and the store is free
        assert frame.select("llm_requests_running") == []
    assert watcher.state.looks == 0 and watcher.state.status == "unknown"
    assert not watcher.stop(0.0)
    release.set()
    assert watcher.stop(15.0)


def test_what_goes_wrong_in_a_listener_is_told_and_the_watch_goes_on(
    server: Any, vllm_page: bytes, watching: Callable[..., TargetWatcher], wait_until: Wait
) -> None:
    server.page("/metrics", vllm_page)

    def broken(_watcher: TargetWatcher, _state: object) -> None:
        raise ValueError("no such thing")

    watcher = watching(configured(t={"url": server.url}), on_tick=broken)
    wait_until(lambda: watcher.monitor.log.count >= 3, 10.0)
    assert "ValueError: no such thing" in str(watcher.state.error) and not watcher.state.up


def test_a_fleet_adds_removes_and_keeps_what_is_unchanged(server: Any, vllm_page: bytes, wait_until: Wait) -> None:
    server.page("/metrics", vllm_page)
    one = {"url": server.url}
    fleet = Fleet(["a", "b"], configured(a=one, b=one), load_catalog(), period=0.1)
    fleet.start()
    wait_until(lambda: all(state.up for state in fleet.states), 10.0)
    kept = fleet.get("a")
    changed = {"url": server.url, "system": "vllm"}
    assert fleet.reload(["a", "b", "c"], configured(a=one, b=changed, c=one)) == (["b", "c"], ["b"])
    assert fleet.get("a") is kept and [state.spec for state in fleet.states] == ["a", "b", "c"]
    with pytest.raises(TargetError):
        fleet.reload(["a", "nowhere"], configured(a=one))
    assert [state.spec for state in fleet.states] == ["a", "b", "c"]
    wait_until(lambda: all(state.up for state in fleet.states), 10.0)
    assert fleet.stop(5.0) == []


def test_a_look_that_fails_inside_is_told_to_whoever_listens(
    server: Any, vllm_page: bytes, watching: Callable[..., TargetWatcher], wait_until: Wait,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("a rule")

    monkeypatch.setattr(TargetWatcher, "_judged", broken)
    server.page("/metrics", vllm_page)
    told: list[Any] = []
    watching(configured(t={"url": server.url}), on_tick=lambda _, state: told.append(state))
    wait_until(lambda: bool(told), 10.0)
    assert not told[0].up and "ZeroDivisionError: a rule" in told[0].error


def test_a_target_that_was_removed_during_its_look_is_told_no_more(
    server: Any, vllm_page: bytes, watching: Callable[..., TargetWatcher], wait_until: Wait
) -> None:
    release = threading.Event()

    def slow(handler: Any) -> None:
        release.wait(10)
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(vllm_page)))
        handler.end_headers()
        handler.wfile.write(vllm_page)

    server.routes["/metrics"] = slow
    told: list[Any] = []
    watcher = watching(configured(t={"url": server.url}), on_tick=lambda _, state: told.append(state))
    wait_until(lambda: bool(server.requests), 10.0)
    assert not watcher.stop(0.0)
    release.set()
    assert watcher.stop(10.0) and told == []


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("value", [b"NaN", b"+Inf", b"-Inf", b"1e308", b"-1"])
def test_a_page_of_impossible_values_breaks_no_look(
    value: bytes, server: Any, vllm_page: bytes, watching: Callable[..., TargetWatcher], wait_until: Wait
) -> None:
    server.page("/metrics", re.sub(rb" [0-9.e+-]+\n", b" " + value + b"\n", vllm_page))
    watcher = watching(configured(t={"url": server.url}))
    wait_until(lambda: watcher.state.looks >= 8 or bool(watcher.state.error), 15.0)
    assert watcher.state.error is None and watcher.state.up


def test_a_server_that_comes_back_was_restarted_only_if_it_says_so(
    server: Any, vllm_page: bytes, watching: Callable[..., TargetWatcher], wait_until: Wait
) -> None:
    def page(started: int) -> bytes:
        kept = [line for line in vllm_page.splitlines() if not line.startswith(b"process_start_time_seconds")]
        return b"\n".join([*kept, b"process_start_time_seconds %d" % started, b""])

    def kinds() -> list[str]:
        return [mark.kind for mark in watcher.marks() if mark.kind in ("lost", "back", "restart")]

    server.page("/metrics", page(1_700_000_000))
    watcher = watching(configured(t={"url": server.url}))
    for started, expected in ((1_700_000_000, ["lost", "back"]), (1_700_000_500, ["lost", "back", "restart"])):
        wait_until(lambda: watcher.state.up, 10.0)
        before = len(kinds())
        server.page("/metrics", b"", status=503)
        wait_until(lambda: not watcher.state.up, 10.0)
        server.page("/metrics", page(started))
        wait_until(lambda: watcher.state.up, 10.0)
        assert kinds()[before:] == expected and watcher.state.started == started


def test_faults_are_told_in_the_language_of_the_watch(
    server: Any, watching: Callable[..., TargetWatcher], wait_until: Wait
) -> None:
    server.page("/metrics", b"", status=503)
    watcher = watching(configured(t={"url": server.url}), lang="zh")
    wait_until(lambda: watcher.state.error is not None, 10.0)
    assert watcher.state.error == f"{server.url}/metrics 返回 503。请查看服务的日志。"


def test_a_source_that_somebody_named_and_that_shows_nothing_is_told(
    server: Any, vllm_page: bytes, watching: Callable[..., TargetWatcher], wait_until: Wait, tmp_path: Path
) -> None:
    server.page("/metrics", vllm_page)
    log = tmp_path / "vllm.log"
    watcher = watching(configured(t={"url": server.url, "log": str(log)}), lang="zh")
    wait_until(lambda: watcher.state.error is not None, 10.0)
    assert watcher.state.up and watcher.state.error == f"数据源 log 没有数据：没有文件 {log}。"
    log.write_text("")
    wait_until(lambda: watcher.state.error is None, 10.0)
