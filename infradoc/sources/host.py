"""CPU, memory, pressure and cgroup of this machine, and the processes of the server when it runs here."""

from __future__ import annotations

import os
import time
from typing import Any

import psutil

from infradoc.model import Reading
from infradoc.sources.cgroup import Cgroup, pressure
from infradoc.sources.host_rows import MODES, PROVIDES, HostRows
from infradoc.sources.processes import ServerProcesses


class HostSource:
    """Looks at the machine that infradoc runs on; bound to targets that are on it."""

    name = "host"
    interval = 0.0
    provides = PROVIDES

    def __init__(self, port: int | None = None) -> None:
        self.processes = ServerProcesses(port) if port else None
        self._rows = HostRows()
        self._cgroup: Cgroup | None = None
        self.last_row: dict[str, Any] = {}

    def is_supported(self) -> bool:
        """Everywhere psutil works; single figures may be missing."""
        return True

    def read(self, now: float) -> Reading:
        """One row about the host, as samples; `last_row` keeps the row itself for `record`."""
        started = time.monotonic()
        try:
            self.last_row = self._row(now)
        except (psutil.Error, OSError) as error:
            return Reading(self.name, now, error=f"The host cannot be read: {error}.")
        return Reading(self.name, now, self._rows.samples(self.last_row), seconds=time.monotonic() - started)

    def _row(self, now: float) -> dict[str, Any]:
        times = psutil.cpu_times()._asdict()
        memory = psutil.virtual_memory()
        row: dict[str, Any] = {
            "t": now,
            "ncpu": psutil.cpu_count() or 1,
            "cpu_seconds": {mode: round(times[mode], 3) for mode in MODES if mode in times},
            "load": list(os.getloadavg()),
            "mem": {
                "total": memory.total,
                "available": memory.available,
                "used": memory.used,
                "swap_used": psutil.swap_memory().used,
            },
            "psi": pressure(),
        }
        if not row["psi"]:
            del row["psi"]
        row.update(_shm())
        row["procs"] = self.processes.rows() if self.processes else []
        row.update(self._cgroup_row())
        return row

    def _cgroup_row(self) -> dict[str, Any]:
        if self._cgroup is None:
            pid = self.processes.main_pid() if self.processes else None
            self._cgroup = Cgroup(pid)
        return self._cgroup.row()

    def close(self) -> None:
        """Nothing is held open."""


def _shm() -> dict[str, int]:
    try:
        usage = psutil.disk_usage("/dev/shm")
    except OSError:
        return {}
    return {"shm_size": usage.total, "shm_free": usage.free}
