"""`infradoc watch` over damaged files and on a full disk: it says so and goes on."""

from __future__ import annotations

import json
import os
import resource
import signal
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from infradoc.service.history import History

pytestmark = pytest.mark.usefixtures("clean_environment")
XID = "NVRM: Xid (PCI:0000:81:00): 79, pid=1234, name=python, GPU has fallen off the bus.\n"
LOG = "INFO 11-30 07:40:00 [api_server.py:1] vLLM API server version 0.11.0\n"


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def until(ready: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.1)


def config(url: str, log: Path, httpserver: HTTPServer, sink: str) -> str:
    httpserver.expect_request(f"/{sink}", method="POST").respond_with_data("ok")
    return (
        f'[targets.prod]\nurl = "{url}"\nhost = false\nlog = "{log}"\n[watch]\nperiod = "0.5s"\n[alerts]\n'
        f'group_wait = "0s"\n[alerts.sinks.{sink}]\nkind = "webhook"\nurl = "{httpserver.url_for("/" + sink)}"\n'
        "allow_private = true\n"
    )


def test_damaged_files_are_set_aside_and_shown(
    server: Any, vllm_page: bytes, watch: Callable[..., Any], tmp_path: Path, httpserver: HTTPServer
) -> None:
    server.page("/metrics", vllm_page)
    log, state = tmp_path / "server.log", tmp_path / "state"
    log.write_text(LOG)
    history = History(state / "history.sqlite", 1e9)
    history.note(time.time(), "prod", {"old": {"severity": "info", "title": "t", "confidence": 1.0}})
    history.close()
    with (state / "history.sqlite").open("r+b") as out:
        out.write(b"\0" * 4096)
    (state / "alerts.sqlite").write_bytes(b"a disk that lost its mind " * 1000)
    running = watch(config(server.url, log, httpserver, "ops"))
    url = running.url()
    said = [running.wait_for("trouble")["text"] for _ in range(2)]
    assert "alerts.sqlite is damaged: file is not a database. It was set aside as alerts.sqlite.damaged-" in said[0]
    assert "history.sqlite is damaged" in said[1] and "saved from it: 1 finding, 0 changes, 0 minutes" in said[1]
    health = get(f"{url}/health")
    assert health["healthy"] and health["set_aside"] == said
    assert {row["id"] for row in get(f"{url}/history")["findings"]} == {"old"}
    time.sleep(2.0)  # what the log held before the first look counts as old
    with log.open("a") as out_log:
        out_log.write(XID)
    until(lambda: len(httpserver.log) > 0)
    assert running.end() == 0
    assert len(list(state.glob("*.damaged-*[0-9]"))) == 2


def trouble_on_a_full_disk(running: Any, log: Path) -> tuple[int, int]:
    """An event once the watch can write nothing any more; returns the limit that was. RLIMIT_FSIZE makes writes fail as
    a full disk does."""
    running.url()
    time.sleep(2.0)  # what the log held before the first look counts as old
    before = resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (0, before[1]))
    with log.open("a") as out:
        out.write(XID)
    return before


def test_a_reload_on_a_full_disk(
    server: Any, vllm_page: bytes, watch: Callable[..., Any], tmp_path: Path, httpserver: HTTPServer
) -> None:
    server.page("/metrics", vllm_page)
    log = tmp_path / "server.log"
    log.write_text(LOG)
    running = watch(config(server.url, log, httpserver, "old"))
    before = trouble_on_a_full_disk(running, log)
    running.wait_for("fired")
    assert "full or failing" in running.wait_for("trouble")["text"]
    running.config.write_text(config(server.url, log, httpserver, "new"))
    running.process.send_signal(signal.SIGHUP)
    assert "alerts: changed" in running.wait_for("reload")["text"]
    time.sleep(1.0)
    assert running.process.poll() is None and not httpserver.log
    resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, before)
    until(lambda: len(httpserver.log) > 0)
    assert {request.path for request, _ in httpserver.log} == {"/new"}
    assert running.end() == 0


def test_the_end_on_a_full_disk_says_what_is_lost(
    server: Any, vllm_page: bytes, watch: Callable[..., Any], tmp_path: Path, httpserver: HTTPServer
) -> None:
    server.page("/metrics", vllm_page)
    log = tmp_path / "server.log"
    log.write_text(LOG)
    running = watch(config(server.url, log, httpserver, "ops"))
    trouble_on_a_full_disk(running, log)
    while "alerts' database" not in running.wait_for("trouble")["text"]:
        pass  # the history says the same of itself
    running.process.send_signal(signal.SIGTERM)
    running.wait_for("stopping")
    assert "not stored before the end, and not sent: 1 (" in running.wait_for("trouble")["text"]
    assert running.process.wait(30) == 0 and not httpserver.log


def test_a_watch_that_is_killed_leaves_no_log_command(
    server: Any, vllm_page: bytes, watch: Callable[..., Any], tmp_path: Path
) -> None:
    server.page("/metrics", vllm_page)
    told = tmp_path / "number"
    command = f"""["sh", "-c", "echo $$ > {told}; exec sleep 600"]"""
    running = watch(f'[targets.prod]\nurl = "{server.url}"\nhost = false\nlog_command = {command}\n')
    running.url()
    until(lambda: told.exists() and told.read_text().endswith("\n"))
    number = int(told.read_text())
    os.kill(number, 0)
    running.process.kill()
    running.process.wait(10)
    until(lambda: not _runs(number))


def _runs(number: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{number}/status").read_text()  # nobody here collects an orphan
    except FileNotFoundError:
        return False
