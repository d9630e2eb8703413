"""The monitor on a live server: ticks, several sources, failures that come and go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infradoc.config import Config, TargetConfig
from infradoc.monitor.attach import attach
from infradoc.monitor.events import SourceFailed, SourceRecovered
from infradoc.monitor.loop import Monitor
from infradoc_rules.catalog import load_catalog

pytestmark = pytest.mark.usefixtures("clean_environment")


def monitor(**config: Any) -> Monitor:
    return Monitor(attach("t", Config(targets={"t": TargetConfig(**config)})), load_catalog())


def test_several_sources_feed_one_store(server: Any, vllm_page: bytes, tmp_path: Path) -> None:
    server.page("/metrics", vllm_page)
    client, launch = tmp_path / "client.jsonl", tmp_path / "launch.txt"
    client.write_text(
        json.dumps({"start": 1.0, "e2e": 1.0, "ttft": 0.1, "status": 200, "finish_reason": "stop"}) + "\n"
    )
    launch.write_text("vllm serve m --max-num-seqs 4")
    watch = monitor(url=server.url, client=str(client), launch=str(launch))
    for now in (100.0, 101.0):
        tick = watch.tick(now)
    watch.close()
    assert {reading.source for reading in tick.readings} == {"metrics", "host", "client"}
    assert watch.target.store.system == "vllm" and watch.target.store.facts["max_num_seqs"].value == 4
    for name in ("llm_requests_running", "host_cpus", "client_requests_total", "target_up"):
        assert tick.frame.select(name), name
    assert tick.now == 101.0 and tick.frame.now == 101.0 and watch.last is tick
    assert {result.id for result in tick.results.results} == {rule.id for rule in load_catalog().rules}


def test_source_failures_come_and_go(server: Any, vllm_page: bytes) -> None:
    server.page("/metrics", vllm_page)
    watch = monitor(url=server.url, host=False)
    assert watch.tick(1.0).events == ()
    server.page("/metrics", b"", status=503)
    (failed,) = watch.tick(2.0).events
    assert isinstance(failed, SourceFailed) and failed.source == "metrics" and "503" in failed.error
    assert watch.tick(3.0).events == ()
    server.page("/metrics", vllm_page)
    (recovered,) = watch.tick(4.0).events
    assert isinstance(recovered, SourceRecovered)
    up = watch.tick(5.0).frame.select("target_up")
    assert [list(one.values) for one in up if one.labels["source"] == "metrics"] == [[1, 0, 0, 1, 1]]
    watch.close()


def test_admin_is_asked_every_few_seconds_and_only_of_the_bundled_engine(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFRADOC_ADMIN_TOKEN", "tok")
    server.page("/metrics", b'llm_requests_running{model="m"} 1\nllm_requests_waiting{model="m"} 0\n')
    server.page(
        "/admin/config", b'{"knobs": {"max_num_seqs": {"value": 16, "origin": "default"}}, "hints": {"cores": 2}}'
    )
    server.page("/admin/blocks", b'{"integrity": "ok"}')
    watch = monitor(url=server.url, host=False)
    for now in range(12):
        watch.tick(float(now))
    watch.close()
    assert [path for path, _ in server.requests].count("/admin/config") == 3
    assert watch.target.store.system == "infradoc"
    assert watch.target.store.facts["hint.cores"].value == 2


def test_counter_of_the_engine_that_has_not_counted_reads_zero(server: Any) -> None:
    server.page("/metrics", b'vllm:num_requests_running{engine="0"} 1\n')
    watch = monitor(url=server.url, host=False)
    frame = watch.tick(1.0).frame
    watch.close()
    assert [list(one.values) for one in frame.select("llm_preemptions_total")] == [[0.0]]
    assert frame.select("llm_requests_truncated_total") == []
