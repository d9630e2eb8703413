"""Looks at this machine while a fix is judged: how busy it is, and what the server, its clients and infradoc take."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from infradoc.remediation.neighbours import Process, Snapshot, Use, use_between
from infradoc_rules.model import SignalFrame

_SEEN_HERE = "proc_stopped"  # told by a look at this machine's own processes only; a page may number those of another
_SERVES = frozenset({"api", "engine", "worker"})
_REFRESH_SECONDS = 10.0  # all sockets are gone through: 0.1 s for 2,800 of them
Address = tuple[str, int]
_WAITED = re.compile(r"^some .*\btotal=(\d+)", re.MULTILINE)


class MachineWatch:
    """Takes a snapshot at each look, and says what others took in between.

    Nothing is said where the server is not on this machine, is not recognised as one (a forwarded port: who listens is
    not who works), or has clients here whose process may not be seen.
    """

    def __init__(self, pressure: Path = Path("/proc/pressure/cpu")) -> None:
        self._pressure = pressure
        self._snapshots: list[Snapshot] = []
        self._helpers: set[int] = set()  # infradoc's own processes, and the server's clients as they became known
        self._hidden = False
        self._refreshed = float("-inf")

    def look(self, frame: SignalFrame) -> None:
        """Take one snapshot. What cannot be read now leaves a gap."""
        server = server_pids(frame)
        if not server:
            return
        try:
            if time.monotonic() - self._refreshed > _REFRESH_SECONDS:
                self._refresh(server)
            own = cpu_seconds(server | self._helpers)
            busy = busy_seconds(psutil.cpu_times())
        except (psutil.Error, OSError):
            return
        waited = waited_seconds(self._pressure)
        self._snapshots.append(Snapshot(time.time(), psutil.cpu_count() or 1, busy, waited, own))

    def use(self, begin: float, end: float) -> Use | None:
        """What others took from `begin` to `end` (Unix seconds); None where that cannot be told."""
        return None if self._hidden else use_between(self._snapshots, begin, end)

    def _refresh(self, server: set[int]) -> None:
        self._refreshed = time.monotonic()
        me = psutil.Process()
        clients, hidden = clients_of(server)
        if hidden:  # a connection made during the look has no process yet, but has one a moment later
            more, still = clients_of(server)
            clients, hidden = clients | more, hidden & still
        self._helpers |= {me.pid, *(child.pid for child in me.children(recursive=True)), *clients}
        self._hidden = self._hidden or bool(hidden)


def server_pids(frame: SignalFrame) -> set[int]:
    """The server's processes as they were seen on this machine; empty where none of them is known to serve."""
    living = [
        series.labels for series in frame.select(_SEEN_HERE) if len(series.values) and math.isfinite(series.values[-1])
    ]
    serves = any(labels.get("role") in _SERVES for labels in living)
    return {int(labels["pid"]) for labels in living if labels.get("pid", "").isdigit()} if serves else set()


def clients_of(server: set[int]) -> tuple[set[int], set[Address]]:
    """Processes of this machine that hold a connection to the server; ends of those whose process is not seen."""
    sockets = psutil.net_connections(kind="tcp")
    ports = {_address(one.laddr)[1] for one in sockets if one.pid in server and one.status == psutil.CONN_LISTEN}
    held = [
        (one.pid, _address(one.laddr), _address(one.raddr))
        for one in sockets
        if one.status == psutil.CONN_ESTABLISHED and one.laddr and one.raddr
    ]
    peers = {there for pid, here, there in held if pid in server and here[1] in ports}
    callers = [(pid, here) for pid, here, _ in held if here in peers]
    known = {pid for pid, _ in callers if pid is not None}
    return known - server, {here for pid, here in callers if pid is None}


def _address(address: Any) -> Address:
    """An end of a connection: a server on both IPv4 and IPv6 sees the former as `::ffff:A.B.C.D`."""
    return address.ip.removeprefix("::ffff:"), address.port


def cpu_seconds(pids: Iterable[int]) -> dict[Process, float]:
    """CPU time of each process that is there, without its children's."""
    found: dict[Process, float] = {}
    for pid in pids:
        try:
            process = psutil.Process(pid)
            times = process.cpu_times()
            found[(pid, process.create_time())] = times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return found


def busy_seconds(times: Any) -> float:
    """Core seconds of the whole machine that were not idle. The time of guests is in `user` and `nice` already."""
    spent = times._asdict()
    return float(sum(spent.values()) - sum(spent.get(mode, 0.0) for mode in ("idle", "iowait", "guest", "guest_nice")))


def waited_seconds(pressure: Path) -> float | None:
    """Seconds in which some task waited for a core; None where the kernel keeps no account of it."""
    try:
        found = _WAITED.search(pressure.read_text(encoding="ascii"))
    except OSError:
        return None
    return int(found[1]) / 1e6 if found else None
