"""Turns rows about the host (the lines of `host.jsonl.gz`) into canonical samples.

The live source and recordings share this: a row is one look at CPU, memory, pressure and the server's processes.
Rows of older recordings hold CPU as percentages only; those are summed up over time into the counters that rules use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infradoc.model import Sample
from infradoc.sources.rows import is_number

MODES = ("user", "system", "iowait", "steal", "idle")
PROVIDES = frozenset(
    {
        "host_cpu_seconds_total",
        "host_cpus",
        "host_load1",
        "host_memory_size_bytes",
        "host_memory_available_bytes",
        "host_swap_used_bytes",
        "host_shm_size_bytes",
        "host_shm_free_bytes",
        "host_cpu_quota_cores",
        "host_cpu_throttled_seconds_total",
        "host_cpu_periods_total",
        "host_cgroup_memory_used_bytes",
        "host_cgroup_memory_limit_bytes",
        "host_oom_kills_total",
        "host_pressure_ratio",
        "proc_cpu_seconds_total",
        "proc_resident_memory_bytes",
        "proc_run_queue_seconds_total",
        "proc_open_fds",
        "proc_start_time_seconds",
        "proc_stopped",
    }
)
_GAUGES = {
    "shm_size": "host_shm_size_bytes",
    "shm_free": "host_shm_free_bytes",
    "cpu_quota_cores": "host_cpu_quota_cores",
    "cpu_throttled_seconds": "host_cpu_throttled_seconds_total",
    "cgroup_memory_used": "host_cgroup_memory_used_bytes",
    "cgroup_memory_limit": "host_cgroup_memory_limit_bytes",
}
_ROLES = {
    "apiserver": "api",
    "enginecore": "engine",
    "worker": "worker",
    "llama-server": "engine",
    "tokenizer": "tokenizer",
    "api": "api",
    "engine": "engine",
}


def role_of(name: str) -> str:
    """The canonical role (api, engine, worker, tokenizer, other) of a process by the name that a recording gives it."""
    lowered = name.lower()
    for start, role in _ROLES.items():
        if lowered.startswith(start):
            return role
    return "other"


class HostRows:
    """Converts rows in order of time. Keeps the sums that percentages are added up into."""

    def __init__(self) -> None:
        self._last_time: float | None = None
        self._mode_seconds: dict[str, float] = {}
        self._pid_seconds: dict[int, float] = {}

    def samples(self, row: Mapping[str, Any]) -> list[Sample]:
        """Samples of one row; keys that are missing or no numbers give none. Row times are Unix seconds under `t`."""
        time = float(row["t"])
        elapsed = max(0.0, time - self._last_time) if self._last_time is not None else 0.0
        self._last_time = time
        found: list[Sample] = []

        def put(name: str, value: Any, **labels: str) -> None:
            if is_number(value):
                found.append(Sample(name, tuple(sorted(labels.items())), time, float(value)))

        put("host_cpus", row.get("ncpu"))
        load = row.get("load")
        put("host_load1", load[0] if isinstance(load, list) and load else None)
        memory = _mapping(row.get("mem"))
        put("host_memory_size_bytes", memory.get("total"))
        put("host_memory_available_bytes", memory.get("available"))
        put("host_swap_used_bytes", memory.get("swap_used"))
        for key, name in _GAUGES.items():
            put(name, row.get(key))
        for mode, seconds in self._cpu_seconds(row, elapsed).items():
            put("host_cpu_seconds_total", seconds, mode=mode)
        for throttled, count in _mapping(row.get("cpu_periods")).items():
            put("host_cpu_periods_total", count, throttled=str(throttled))
        for scope, count in _mapping(row.get("oom_kills")).items():
            put("host_oom_kills_total", count, scope=str(scope))
        self._pressure(row, put)
        processes = row.get("procs")
        for process in processes if isinstance(processes, list) else ():
            if isinstance(process, Mapping) and isinstance(process.get("pid"), int):
                self._process(process, elapsed, put)
        return found

    def _cpu_seconds(self, row: Mapping[str, Any], elapsed: float) -> dict[str, float]:
        counters = _mapping(row.get("cpu_seconds"))
        if counters:
            return {mode: counters[mode] for mode in MODES if mode in counters}
        shares = _mapping(row.get("cpu_times_percent"))
        cores = row.get("ncpu")
        for mode in MODES:
            if is_number(shares.get(mode)):
                added = shares[mode] / 100 * (cores if is_number(cores) and cores else 1) * elapsed
                self._mode_seconds[mode] = self._mode_seconds.get(mode, 0.0) + added
        return self._mode_seconds

    @staticmethod
    def _pressure(row: Mapping[str, Any], put: Any) -> None:
        for resource, shares in _mapping(row.get("psi")).items():
            for share, windows in _mapping(shares).items():
                for window, ratio in _mapping(windows).items():
                    put("host_pressure_ratio", ratio, resource=resource, share=share, window=window)
        if "psi" not in row:
            for share, percent in _mapping(row.get("psi_cpu_avg10")).items():
                if is_number(percent):
                    put("host_pressure_ratio", percent / 100, resource="cpu", share=share, window="10s")

    def _process(self, process: Mapping[str, Any], elapsed: float, put: Any) -> None:
        pid = int(process["pid"])
        labels = {"role": role_of(str(process.get("role", ""))), "pid": str(pid)}
        seconds = process.get("cpu_seconds")
        percent = process.get("cpu_percent")
        if seconds is None and is_number(percent):
            seconds = self._pid_seconds[pid] = self._pid_seconds.get(pid, 0.0) + percent / 100 * elapsed
        put("proc_cpu_seconds_total", seconds, **labels)
        put("proc_resident_memory_bytes", process.get("rss"), **labels)
        put("proc_run_queue_seconds_total", process.get("run_delay_s_total"), **labels)
        put("proc_open_fds", process.get("fds"), **labels)
        put("proc_start_time_seconds", process.get("start_time"), **labels)
        if process.get("state"):
            put("proc_stopped", 1.0 if process["state"] in ("stopped", "tracing-stop") else 0.0, **labels)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
