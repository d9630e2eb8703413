"""Finds the processes of a server on this machine by the port it listens on, and reads them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

_REFRESH_SECONDS = 5.0
# Programs that start the listener and its engine side by side: the engine is then no descendant of the listener.
_LAUNCHERS = frozenset({"text-generation-launcher"})  # TGI: starts the router, which listens, and a server per shard


class ServerProcesses:
    """The listener on a port, a launcher that started it, and all their descendants.

    The family is looked up again every few seconds.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._known: dict[int, psutil.Process] = {}
        self._checked = float("-inf")
        self._socket: ListeningSocket | None = None

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
        """The command line that started the server: the launcher's or the listener's; empty if it cannot be seen."""
        pid = self.main_pid()
        if pid is None:
            return []
        try:
            listener = self._known[pid]
            return list((launcher_of(listener) or listener).cmdline())
        except (psutil.Error, KeyError):
            return []

    def _refresh(self) -> None:
        self._checked = time.monotonic()
        if self._socket is None or not self._socket.is_open():
            self._socket = find_socket(self._port)
        if self._socket is None:
            self._known = {}
            return
        listener = self._socket.process
        launcher = launcher_of(listener)
        first = [listener] if launcher is None else [listener, launcher]
        try:
            family = [*first, *first[-1].children(recursive=True)]
        except psutil.Error:
            family = first
        self._known = {process.pid: self._known.get(process.pid, process) for process in family}


@dataclass(frozen=True, slots=True)
class ListeningSocket:
    """A listening socket as its process holds it. `link` is what its file descriptor points to, with the inode."""

    process: psutil.Process
    descriptor: Path
    link: str

    def is_open(self) -> bool:
        """Whether the process still holds this very socket; False also where that cannot be seen."""
        try:
            return self.link != "" and str(self.descriptor.readlink()) == self.link and self.process.is_running()
        except (OSError, psutil.Error):
            return False


def find_socket(port: int) -> ListeningSocket | None:
    """The socket that listens on a TCP port here; None when there is none or it may not be seen.

    All connections of the machine are gone through: 14 ms for 300 of them, so this is not for every few seconds.
    """
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return None
    for connection in connections:
        here = connection.laddr and connection.laddr.port == port
        if here and connection.status == psutil.CONN_LISTEN and connection.pid:
            descriptor = Path(f"/proc/{connection.pid}/fd/{connection.fd}")
            try:
                process = psutil.Process(connection.pid)
                return ListeningSocket(process, descriptor, str(descriptor.readlink()))
            except psutil.Error:
                return None
            except OSError:  # no /proc, or no right to look: it is found anew every time
                return ListeningSocket(process, descriptor, "")
    return None


def launcher_of(listener: psutil.Process) -> psutil.Process | None:
    """The program that started the listener beside the engine's own processes; None where there is none."""
    try:
        parent = listener.parent()
        command = parent.cmdline() if parent is not None else []
    except psutil.Error:
        return None
    # A script is the second word, after its interpreter.
    return parent if any(Path(word).name in _LAUNCHERS for word in command[:2]) else None


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
        ("text-generation-launcher", "launcher"),
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
