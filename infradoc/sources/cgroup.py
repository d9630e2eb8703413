"""CPU quota, memory limit and throttling of the cgroup that a process lives in; cgroup v2 and v1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_V1_UNLIMITED = 1 << 60


class Cgroup:
    """Reads one process's cgroup. `root` and `proc` are the mount points, given by tests."""

    def __init__(self, pid: int | None = None, root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc")) -> None:
        self._root = root
        self._v2 = (root / "cgroup.controllers").exists()
        self._paths = self._locate(proc / (str(pid) if pid else "self") / "cgroup")

    def _locate(self, listing: Path) -> dict[str, str]:
        found: dict[str, str] = {}
        for line in (_text(listing) or "").splitlines():
            _, controllers, path = [*line.split(":", 2), "", ""][:3]
            for controller in controllers.split(","):
                found[controller] = path.lstrip("/")
        return found

    def row(self) -> dict[str, Any]:
        """Keys of a host row; what is unlimited or cannot be read is left out."""
        row = self._row_v2() if self._v2 else self._row_v1()
        return {key: value for key, value in row.items() if value is not None}

    def _row_v2(self) -> dict[str, Any]:
        folder = self._folder(self._root, self._paths.get("", ""))
        quota, period = [*(_text(folder / "cpu.max") or "max").split(), "100000"][:2]
        cpu = _table(folder / "cpu.stat")
        events = _table(folder / "memory.events")
        throttled = cpu.get("throttled_usec")
        return {
            "cpu_quota_cores": int(quota) / int(period) if quota.isdigit() and period.isdigit() else None,
            "cpu_throttled_seconds": throttled / 1e6 if throttled is not None else None,
            "cpu_periods": _periods(cpu),
            "cgroup_memory_used": _number(folder / "memory.current"),
            "cgroup_memory_limit": _number(folder / "memory.max"),
            "oom_kills": {"cgroup": events["oom_kill"]} if "oom_kill" in events else None,
        }

    def _row_v1(self) -> dict[str, Any]:
        cpu = self._folder(self._root / "cpu", self._paths.get("cpu", ""))
        memory = self._folder(self._root / "memory", self._paths.get("memory", ""))
        quota, period = _number(cpu / "cpu.cfs_quota_us"), _number(cpu / "cpu.cfs_period_us")
        stat = _table(cpu / "cpu.stat")
        limit = _number(memory / "memory.limit_in_bytes")
        kills = _table(memory / "memory.oom_control").get("oom_kill")
        return {
            "cpu_quota_cores": quota / period if quota and period and quota > 0 else None,
            "cpu_throttled_seconds": stat["throttled_time"] / 1e9 if "throttled_time" in stat else None,
            "cpu_periods": _periods(stat),
            "cgroup_memory_used": _number(memory / "memory.usage_in_bytes"),
            "cgroup_memory_limit": limit if limit is not None and limit < _V1_UNLIMITED else None,
            "oom_kills": {"cgroup": kills} if kills is not None else None,
        }

    @staticmethod
    def _folder(root: Path, relative: str) -> Path:
        # Inside a container the path of /proc/self/cgroup may be the host's and not be mounted: the root is ours then.
        folder = root / relative
        return folder if folder.is_dir() else root


def _periods(stat: dict[str, int]) -> dict[str, int] | None:
    if "nr_periods" not in stat:
        return None
    throttled = stat.get("nr_throttled", 0)
    return {"true": throttled, "false": max(0, stat["nr_periods"] - throttled)}


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = _text(path)
    try:
        return int(text) if text else None
    except ValueError:  # "max" means unlimited
        return None


def _table(path: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in (_text(path) or "").splitlines():
        key, _, value = line.partition(" ")
        if value.strip().isdigit():
            found[key] = int(value)
    return found


def pressure(folder: Path = Path("/proc/pressure")) -> dict[str, dict[str, dict[str, float]]]:
    """Pressure stall shares as ratios: resource -> some|full -> 10s|60s|300s. Empty where the kernel has none."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for resource in ("cpu", "memory", "io"):
        for line in (_text(folder / resource) or "").splitlines():
            share, *pairs = line.split()
            windows = {}
            for pair in pairs:
                key, _, value = pair.partition("=")
                if key.startswith("avg"):
                    windows[f"{key[3:]}s"] = float(value) / 100
            found.setdefault(resource, {})[share] = windows
    return found
