"""Finds the processes of a server on this machine by the port it listens on, and reads them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

_REFRESH_SECONDS = 5.0


class ServerProcesses:
    """The listener on a port and all its descendants. The family is looked up again every few seconds."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._known: dict[int, psutil.Process] = {}
        self._checked = float("-inf")

    def rows(self) -> list[dict[str, Any]]:
        """One row per process, in the shape of a recording's `procs`."""
        if time.monotonic() - self._checked > _REFRESH_SECONDS or not self._known:
            self._refresh()
        found = []
        for process in list(self._known.values()):
            try:
                found.append(_row(process))
            except psutil.Error:
                self._known.pop(process.pid, None)
        return found

    def main_pid(self) -> int | None:
        """PID of the listener, if it can be seen."""
        self.rows()
        return next(iter(self._known), None)

    def command(self) -> list[str]:
        """The command line of the listener; empty when it cannot be seen."""
        pid = self.main_pid()
        if pid is None:
            return []
        try:
            return list(self._known[pid].cmdline())
        except (psutil.Error, KeyError):
            return []

    def _refresh(self) -> None:
        self._checked = time.monotonic()
        listener = find_listener(self._port)
        if listener is None:
            self._known = {}
            return
        try:
            family = [listener, *listener.children(recursive=True)]
        except psutil.Error:
            family = [listener]
        self._known = {process.pid: self._known.get(process.pid, process) for process in family}


def find_listener(port: int) -> psutil.Process | None:
    """The process that listens on a TCP port here; None when there is none or it may not be seen."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return None
    for connection in connections:
        here = connection.laddr and connection.laddr.port == port
        if here and connection.status == psutil.CONN_LISTEN and connection.pid:
            try:
                return psutil.Process(connection.pid)
            except psutil.Error:
                return None
    return None


def _row(process: psutil.Process) -> dict[str, Any]:
    with process.oneshot():
        times = process.cpu_times()
        row: dict[str, Any] = {
            "pid": process.pid,
            "role": _role_name(process.name(), process.cmdline()),
            "cpu_seconds": round(times.user + times.system, 3),
            "rss": process.memory_info().rss,
            "threads": process.num_threads(),
            "state": process.status(),
            "start_time": process.create_time(),
        }
    delay = _run_delay(process.pid)
    if delay is not None:
        row["run_delay_s_total"] = delay
    with contextlib.suppress(psutil.Error, AttributeError):  # macOS and foreign processes
        row["fds"] = process.num_fds()
    return row


def _role_name(name: str, command: Iterable[str]) -> str:
    line = " ".join(command)
    for mark, role in (
        ("EngineCore", "EngineCore"),
        ("Worker", "Worker"),
        ("APIServer", "APIServer"),
        ("tokenizer_worker", "tokenizer"),
        ("llama-server", "llama-server"),
        ("infradoc_engine", "engine"),
        ("resource_tracker", "resource_tracker"),
        ("vllm", "APIServer"),
        ("sglang::sched", "engine"),  # SGLang names its processes; the kernel cuts such a name after 15 letters
        ("sglang::data_par", "engine"),
        ("sglang::detoken", "tokenizer"),
        ("sglang", "APIServer"),
        ("text-generation-router", "APIServer"),  # TGI
        ("text-generation-server", "engine"),
    ):
        if mark in name or mark in line:
            return role
    return name


def _run_delay(pid: int) -> float | None:
    """Seconds that all threads of a process were runnable but not running (Linux schedstat)."""
    total = 0
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            fields = (task / "schedstat").read_text(encoding="ascii").split()
            total += int(fields[1])
    except (OSError, ValueError, IndexError):
        return None
    return round(total / 1e9, 3)
