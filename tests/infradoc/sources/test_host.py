"""Host figures: rows of recordings, the live machine, and cgroups of both versions."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from infradoc.model import Sample
from infradoc.sources import processes
from infradoc.sources.cgroup import Cgroup, pressure
from infradoc.sources.gpu_processes import Family
from infradoc.sources.host import HostSource
from infradoc.sources.host_rows import HostRows, role_of
from infradoc.sources.processes import ServerProcesses, _role_name, find_socket

ROW: dict[str, Any] = {
    "t": 100.0,
    "ncpu": 2,
    "cpu_times_percent": {"user": 50.0, "system": 10.0, "iowait": 0.0, "idle": 40.0, "steal": 0.0},
    "load": [0.7, 2.0, 4.0],
    "mem": {"total": 1000, "available": 600, "used": 400, "swap_used": 5},
    "psi_cpu_avg10": {"some": 17.0, "full": 0.0},
    "procs": [
        {"pid": 7, "role": "EngineCore", "cpu_percent": 50.0, "rss": 99, "state": "running", "run_delay_s_total": 1.5}
    ],
}


def value(samples: list[Sample], name: str, **labels: str) -> float:
    (found,) = [one.value for one in samples if one.name == name and dict(one.labels) == labels]
    return found


def test_percentages_become_counters() -> None:
    rows = HostRows()
    rows.samples(ROW)
    samples = rows.samples({**ROW, "t": 102.0})
    assert value(samples, "host_cpu_seconds_total", mode="user") == pytest.approx(0.5 * 2 * 2.0)
    assert value(samples, "proc_cpu_seconds_total", role="engine", pid="7") == pytest.approx(1.0)
    assert value(samples, "host_memory_available_bytes") == 600
    assert value(samples, "host_pressure_ratio", resource="cpu", share="some", window="10s") == pytest.approx(0.17)
    assert value(samples, "proc_stopped", role="engine", pid="7") == 0.0
    assert value(samples, "host_load1") == 0.7


def test_rows_with_figures_that_are_none_give_the_rest() -> None:
    broken = {"t": 2.0, "ncpu": "two", "cpu_times_percent": {"user": 50.0, "system": "x"}, "procs": 5}
    rows = HostRows()
    rows.samples({"t": 1.0})
    samples = rows.samples({**broken, "psi_cpu_avg10": {"some": "x"}, "load": [float("nan")], "shm_free": 7})
    assert {one.name: one.value for one in samples} == {"host_cpu_seconds_total": 0.5, "host_shm_free_bytes": 7}


def test_stopped_process_and_missing_parts() -> None:
    stopped = {"t": 1.0, "procs": [{"pid": 7, "role": "Worker", "state": "stopped"}, {"role": "no pid"}, "rubbish"]}
    samples = HostRows().samples(stopped)
    assert value(samples, "proc_stopped", role="worker", pid="7") == 1.0
    assert {one.name for one in samples} == {"proc_stopped"}
    assert HostRows().samples({"t": 1.0, "load": "x", "mem": 5, "ncpu": "two"}) == []


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("APIServer", "api"),
        ("EngineCore_0", "engine"),
        ("Worker_TP0", "worker"),
        ("llama-server", "engine"),
        ("bash", "other"),
    ],
)
def test_roles(name: str, role: str) -> None:
    assert role_of(name) == role


@pytest.mark.parametrize(
    ("name", "command", "role"),
    [
        ("sglang::schedul", ["sglang::scheduler_TP0"], "engine"),
        ("sglang::detoken", ["sglang::detokenizer"], "tokenizer"),
        ("python3", ["python3", "-m", "sglang.launch_server", "--model-path", "m"], "api"),
        ("text-generation", ["text-generation-router", "--port", "80"], "api"),
        ("text-generation", ["/usr/bin/python", "/usr/bin/text-generation-server", "serve", "m"], "engine"),
        ("VLLM::EngineCor", ["VLLM::EngineCore"], "engine"),
        ("python3", ["python3", "train.py"], "other"),
    ],
)
def test_processes_of_each_engine_are_known_by_their_names(name: str, command: list[str], role: str) -> None:
    assert role_of(_role_name(name, command)) == role


def test_this_machine_and_the_process_behind_a_port() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        found = find_socket(port)
        assert found is not None and found.process.pid == os.getpid()
        source = HostSource(port)
        first = source.read(time.time())
        second = source.read(time.time() + 1)
    assert first.error is None
    names = {one.name for one in second.samples}
    assert {"host_cpus", "host_cpu_seconds_total", "host_memory_size_bytes", "host_load1"} <= names
    mine = [
        one
        for one in second.samples
        if one.name == "proc_cpu_seconds_total" and ("pid", str(os.getpid())) in one.labels
    ]
    assert mine and mine[0].value > 0


def test_the_listener_is_searched_again_only_when_its_socket_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[int] = []
    search = processes.find_socket
    monkeypatch.setattr(processes, "find_socket", lambda port: searches.append(port) or search(port))
    monkeypatch.setattr(processes, "_REFRESH_SECONDS", -1.0)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        family = ServerProcesses(listener.getsockname()[1])
        for _ in range(3):
            assert [row["pid"] for row in family.rows()][:1] == [os.getpid()]
        if sys.platform == "linux":
            assert len(searches) == 1
    assert family.rows() == []  # the same process lives on, but nothing listens there


def test_cgroup_v2(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    group = tmp_path / "box"
    group.mkdir()
    (group / "cpu.max").write_text("150000 100000\n")
    (group / "cpu.stat").write_text("usage_usec 5\nnr_periods 10\nnr_throttled 4\nthrottled_usec 2500000\n")
    (group / "memory.current").write_text("123\n")
    (group / "memory.max").write_text("max\n")
    (group / "memory.events").write_text("oom 3\noom_kill 2\n")
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("0::/box\n")
    row = Cgroup(root=tmp_path, proc=tmp_path).row()
    assert row == {
        "cpu_quota_cores": 1.5,
        "cpu_throttled_seconds": 2.5,
        "cpu_periods": {"true": 4, "false": 6},
        "cgroup_memory_used": 123,
        "oom_kills": {"cgroup": 2},
    }


def test_cgroup_v1(tmp_path: Path) -> None:
    for name, text in {
        "cpu/box/cpu.cfs_quota_us": "50000",
        "cpu/box/cpu.cfs_period_us": "100000",
        "cpu/box/cpu.stat": "nr_periods 5\nnr_throttled 5\nthrottled_time 3000000000\n",
        "memory/box/memory.limit_in_bytes": "4096",
        "memory/box/memory.usage_in_bytes": "1024",
        "memory/box/memory.oom_control": "oom_kill_disable 0\noom_kill 1\n",
        "self/cgroup": "4:cpu,cpuacct:/box\n3:memory:/box\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    row = Cgroup(root=tmp_path, proc=tmp_path).row()
    assert row["cpu_quota_cores"] == 0.5 and row["cpu_throttled_seconds"] == 3.0
    assert row["cgroup_memory_limit"] == 4096 and row["oom_kills"] == {"cgroup": 1}


def test_no_cgroup_and_no_pressure(tmp_path: Path) -> None:
    assert Cgroup(root=tmp_path, proc=tmp_path).row() == {}
    assert pressure(tmp_path) == {}


def test_pressure(tmp_path: Path) -> None:
    (tmp_path / "cpu").write_text(
        "some avg10=12.50 avg60=3.00 avg300=0.10 total=99\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    )
    assert pressure(tmp_path)["cpu"]["some"] == {"10s": 0.125, "60s": 0.03, "300s": 0.001}


# A launcher as TGI has it: it starts the router, which listens, and a server per shard, as siblings.
_LAUNCHER = """
import subprocess, sys
folder = sys.argv[1]
shards = [subprocess.Popen([sys.executable, f"{folder}/text-generation-server", "serve"]) for _ in range(2)]
router = subprocess.Popen([sys.executable, f"{folder}/text-generation-router"])
router.wait()
"""
_ROUTER = """
import socket, time
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    time.sleep(300)
"""


@pytest.fixture
def tgi(tmp_path: Path) -> Iterator[tuple[int, list[psutil.Process]]]:
    """Port of a router, and the processes of its family, the launcher first."""
    programs = {"launcher": _LAUNCHER, "router": _ROUTER, "server": "import time; time.sleep(300)"}
    for name, text in programs.items():
        (tmp_path / f"text-generation-{name}").write_text(text)
    command = [sys.executable, str(tmp_path / "text-generation-launcher"), str(tmp_path), "--max-input-tokens", "512"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    family = [psutil.Process(child.pid)]
    try:
        port = int(child.stdout.readline())
        family += family[0].children(recursive=True)
        yield port, family
    finally:
        for process in [*family[0].children(recursive=True), family[0]]:
            process.kill()
        child.wait()
        child.stdout.close()


def test_the_shards_of_a_launcher_are_the_server_s(tgi: tuple[int, list[psutil.Process]]) -> None:
    port, family = tgi
    processes = ServerProcesses(port)
    rows = processes.rows()
    assert sorted(row["pid"] for row in rows) == sorted(process.pid for process in family) and len(rows) == 4
    assert sorted(row["role"] for row in rows) == ["APIServer", "engine", "engine", "launcher"]
    assert processes.main_pid() == next(row["pid"] for row in rows if row["role"] == "APIServer")
    assert processes.command()[-2:] == [
        "--max-input-tokens",
        "512",
    ]  # what the user typed, not what it was handed on as
    assert Family.of(rows).engine


def test_a_shell_that_started_several_servers_is_none_of_the_family() -> None:
    program = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True);"
    command = f'sleep 300 & "{sys.executable}" -c "{program} time.sleep(300)"; true'
    with subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        try:
            rows = ServerProcesses(int(shell.stdout.readline())).rows()
            assert len(rows) == 1 and rows[0]["pid"] != shell.pid
        finally:
            for process in [*psutil.Process(shell.pid).children(recursive=True), shell]:
                process.kill()
