"""`infradoc watch` as a service manager and a Prometheus meet it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from infradoc.cli import watch as watch_command
from infradoc.service.history import History

pytestmark = pytest.mark.usefixtures("clean_environment")


def get(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def target(name: str, url: str) -> str:
    return f'[targets.{name}]\nurl = "{url}"\nhost = false\n'


def test_a_finding_fires_and_is_told_everywhere(
    server: Any, vllm_page: bytes, watch: Callable[..., Any], tmp_path: Path
) -> None:
    server.page("/metrics", vllm_page)
    log = tmp_path / "server.log"
    log.write_text("INFO 11-30 07:40:00 [api_server.py:1] vLLM API server version 0.11.0\n")
    running = watch(target("prod", server.url) + f'log = "{log}"\n[watch]\nperiod = "0.5s"\n')
    url = running.url()
    assert "prod; alerts go to nobody, for there are no [alerts.sinks.NAME]" in running.seen[-1]["text"]
    while b'infradoc_target_up{target="prod"} 1.0' not in get(f"{url}/metrics")[1]:
        time.sleep(0.1)  # what the log held before the first look counts as old
    with log.open("a") as out:
        out.write("NVRM: Xid (PCI:0000:81:00): 79, pid=1234, name=python, GPU has fallen off the bus.\n")
    fired = running.wait_for("fired", 60.0)
    assert fired["target"] == "prod" and fired["finding"] == "gpu-hardware-error" and fired["severity"] == "critical"

    status, page = get(f"{url}/metrics")
    samples = {
        (sample.name, sample.labels.get("finding") or sample.labels.get("target", "")): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }
    assert status == 200
    assert samples["infradoc_target_up", "prod"] == 1.0
    assert 0.5 < samples["infradoc_finding", "gpu-hardware-error"] <= 1.0
    assert samples["infradoc_target_looks_total", "prod"] >= 1
    assert b'infradoc_incidents_firing{severity="critical"} 1.0' in page

    assert json.loads(get(f"{url}/health")[1]) == {
        "healthy": True, "late": [], "troubles": {}, "set_aside": [],
    }  # fmt: skip
    (found,) = json.loads(get(f"{url}/findings")[1])
    assert found["findings"][0]["id"] == "gpu-hardware-error"
    history = json.loads(get(f"{url}/history?since=600&target=prod")[1])
    assert [(row["id"], row["ended"]) for row in history["findings"]] == [("gpu-hardware-error", None)]
    assert get(f"{url}/history?since=x")[0] == 400
    assert get(f"{url}/nothing")[0] == 404

    assert running.end() == 0
    state = {**os.environ, "INFRADOC_STATE_DIR": str(running.folder / "state")}
    command = [sys.executable, "-P", "-m", "infradoc", "watch", "--history", "1h", "--config", str(running.config)]
    printed = subprocess.run(command, capture_output=True, text=True, env=state, timeout=60)
    assert "prod  gpu-hardware-error" in printed.stdout and printed.returncode == 0


def test_the_history_is_printed_with_applied_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INFRADOC_STATE_DIR", str(tmp_path))
    now = time.time()
    history = History(tmp_path / "history.sqlite", 1e9)
    history.note(now - 900, "prod", {"kv": {"severity": "warning", "title": "t", "confidence": 0.9}})
    history.change("prod", "c1:applied", now - 600, "applied: max_num_seqs 64 -> 32")
    history.note(now - 500, "prod", {})
    history.change("prod", "c1:verdict", now - 300, "verdict fixed: max_num_seqs 64 -> 32")
    history.change("lab", "c2:applied", now - 100, "applied: swap 0 -> 4")
    history.change("lab", "c0:applied", now - 90_000, "applied: too old")
    history.close()
    assert watch_command.run(["prod", "--history", "1h"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ", 1)[1].split() for line in lines] == [
        ["change", "prod", "verdict", "fixed:", "max_num_seqs", "64", "->", "32"],
        ["change", "prod", "applied:", "max_num_seqs", "64", "->", "32"],
        [lines[2].split()[1], "warning", "prod", "kv"],
    ]
    assert watch_command.run(["--history", "1h", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in told["findings"]] == ["kv"]
    assert [row["id"] for row in told["changes"]] == ["c2:applied", "c1:verdict", "c1:applied"]
    assert watch_command.run(["--history", "50s"]) == 0
    assert capsys.readouterr().err == "No finding and no applied change in the last 50s.\n"


def test_sighup_follows_the_file_and_survives_a_broken_one(
    server: Any, vllm_page: bytes, watch: Callable[..., Any]
) -> None:
    server.page("/metrics", vllm_page)
    running = watch(target("one", server.url))
    url = running.url()
    running.config.write_text(target("one", server.url) + target("two", server.url))
    running.process.send_signal(signal.SIGHUP)
    assert "targets: added two, removed none; alerts: as before" in running.wait_for("reload")["text"]
    assert {row["target"] for row in json.loads(get(f"{url}/findings")[1])} == {"one", "two"}

    running.config.write_text("[targets.one\n")
    running.process.send_signal(signal.SIGHUP)
    assert "the old one stays in force" in running.wait_for("trouble")["text"]
    assert len(json.loads(get(f"{url}/findings")[1])) == 2

    running.config.write_text(target("two", server.url) + '[alerts]\ngroup_wait = "7s"\n')
    running.process.send_signal(signal.SIGHUP)
    assert "added none, removed one; alerts: changed" in running.wait_for("reload")["text"]
    assert running.end(signal.SIGINT) == 0


def test_a_configuration_that_is_gone_at_a_reload_changes_nothing(
    server: Any, vllm_page: bytes, watch: Callable[..., Any]
) -> None:
    """Found where it was found at the start: with targets on the command line, no file is no fault by itself."""
    server.page("/metrics", vllm_page)
    sink = '[alerts.sinks.ops]\nkind = "webhook"\nurl = "http://127.0.0.1:9/"\nallow_private = true\n'
    running = watch(sink, server.url, local=True)
    url = running.url()
    assert b'sink="ops"' in get(f"{url}/metrics")[1]
    running.config.unlink()
    running.process.send_signal(signal.SIGHUP)
    assert "There is no configuration file" in running.wait_for("trouble")["text"]
    assert b'sink="ops"' in get(f"{url}/metrics")[1]
    assert running.end() == 0


def test_a_target_that_is_taken_out_is_over_in_the_history(
    server: Any, vllm_page: bytes, watch: Callable[..., Any], tmp_path: Path
) -> None:
    server.page("/metrics", vllm_page)
    log = tmp_path / "server.log"
    log.write_text("INFO 11-30 07:40:00 [api_server.py:1] vLLM API server version 0.11.0\n")
    running = watch(target("a", server.url) + target("b", server.url) + f'log = "{log}"\n[watch]\nperiod = "0.5s"\n')
    url = running.url()
    while b'infradoc_target_up{target="b"} 1.0' not in get(f"{url}/metrics")[1]:
        time.sleep(0.1)
    with log.open("a") as out:
        out.write("NVRM: Xid (PCI:0000:81:00): 79, pid=1234, name=python, GPU has fallen off the bus.\n")
    running.wait_for("fired", 60.0)
    running.config.write_text(target("a", server.url) + '[watch]\nperiod = "0.5s"\n')
    running.process.send_signal(signal.SIGHUP)
    running.wait_for("reload")
    (row,) = json.loads(get(f"{url}/history?target=b")[1])["findings"]
    assert row["ended"] is not None
    assert running.end() == 0


def test_a_server_that_goes_and_comes_back_is_told_once(
    server: Any, vllm_page: bytes, watch: Callable[..., Any]
) -> None:
    running = watch(target("prod", server.url))
    running.wait_for("lost")
    server.page("/metrics", vllm_page)
    assert "answers again" in running.wait_for("back")["text"]
    assert sum(line["event"] == "lost" for line in running.seen) == 1
    assert running.end() == 0


def test_a_second_watch_of_one_state_folder_is_refused(
    server: Any, vllm_page: bytes, watch: Callable[..., Any]
) -> None:
    server.page("/metrics", vllm_page)
    first = watch(target("prod", server.url))
    first.url()
    second = watch(target("prod", server.url))
    error = second.process.communicate(timeout=60)[1]
    assert second.process.returncode != 0
    assert len(error.strip().splitlines()) <= 2 and "Traceback" not in error and "already sent by" in error
    assert first.end() == 0


def test_a_service_manager_is_told(server: Any, vllm_page: bytes, watch: Callable[..., Any], tmp_path: Path) -> None:
    server.page("/metrics", vllm_page)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        running = watch(
            target("prod", server.url), env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000"}
        )
        assert manager.recv(100) == b"READY=1"
        assert manager.recv(100) == b"WATCHDOG=1"
        assert running.end() == 0
        heard = {manager.recv(100) for _ in range(50) if not _quiet(manager)}
    assert b"STOPPING=1" in heard


def _quiet(link: socket.socket) -> bool:
    link.settimeout(0.2)
    try:
        return not link.recv(100, socket.MSG_PEEK)
    except TimeoutError:
        return True


def test_the_unit_is_one_that_systemd_can_read(tmp_path: Path) -> None:
    config = tmp_path / "infra doc.toml"
    config.write_text('[targets.a]\nurl = "http://127.0.0.1:1"\n')
    command = [sys.executable, "-P", "-m", "infradoc", "watch", "--unit", "--config", str(config)]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    keys = [line.partition("=")[0] for line in text.splitlines() if "=" in line and not line.startswith("#")]
    assert {"Type", "ExecStart", "ExecReload", "WatchdogSec", "Restart"} <= set(keys)
    assert f"'{config}'" in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[watch]\nperiod = "fast"\n', "watch.period"),
        ('[watch]\nlisten = "nowhere"\n', "watch.listen"),
        ('[watch]\nretention = "1s"\n', "watch.retention"),
        ("[watch]\nperoid = 1\n", "'period'"),
        ("[watch]\ntargets = [1]\n", "watch.targets"),
        ('[watch]\nlang = "fr"\n', "watch.lang"),
        ("", "nothing to watch"),
    ],
)
def test_a_fault_of_the_file_is_one_sentence(text: str, says: str, watch: Callable[..., Any]) -> None:
    config = text + (target("a", "http://127.0.0.1:1") if text else "")
    running = watch(config)
    error = running.process.communicate(timeout=60)[1]
    assert running.process.returncode == 2
    assert says in error and "Traceback" not in error


def test_a_port_in_use_is_one_sentence(server: Any, watch: Callable[..., Any]) -> None:
    running = watch(target("a", server.url), "--listen", f"127.0.0.1:{server.port}")
    error = running.process.communicate(timeout=60)[1]
    assert running.process.returncode != 0
    assert "Cannot listen on" in error and "Traceback" not in error
