"""AMD GPUs of this host through `amdsmi`, the Python library that comes with ROCm: the same rows as for NVML."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from infradoc.model import Reading
from infradoc.sources.gpu_host import has_amd
from infradoc.sources.gpu_processes import Family, in_host_namespace, process_rows
from infradoc.sources.gpu_rows import PROVIDES, ROW_FILE, GpuRows
from infradoc.sources.rows import is_number

_MIB = 2**20
# Flag of `amdsmi_get_violation_status` -> our reason.
_VIOLATIONS = {
    "active_ppt_pwr": "power_cap",
    "active_prochot_thrm": "hw_thermal",
    "active_socket_thrm": "sw_thermal",
    "active_vr_thrm": "sw_thermal",
    "active_hbm_thrm": "sw_thermal",
}
_SENSORS = {"die": ("HOTSPOT", "JUNCTION", "EDGE"), "memory": ("VRAM",)}


class AmdSmiSource:
    """Looks at the AMD GPUs of this host. `family` gives the server's processes on this host."""

    name = "amdsmi"
    interval = 0.0
    provides = PROVIDES - {"gpu_xid_errors_total"}
    row_file = ROW_FILE

    def __init__(
        self,
        family: Callable[[], Family] = Family,
        indices: Sequence[int] = (),
        root: Path = Path("/"),
    ) -> None:
        self._family = family
        self._indices = tuple(indices)
        self._root = root
        self._smi: Any = None
        self._tried = False
        self._open_now = False
        self._reason = ""
        self._devices: list[tuple[int, Any]] = []
        self._refused: set[tuple[int, str]] = set()
        self._static: dict[int, dict[str, Any]] = {}
        self._driver = ""
        self._rows = GpuRows()
        self._host_pids = in_host_namespace()
        self.last_row: dict[str, Any] = {}

    def is_supported(self) -> bool:
        """Whether the library is there and sees a GPU."""
        if not self._tried:
            self._tried = True
            self._open()
        return self._open_now

    def why_not(self) -> str | None:
        """Why the GPUs cannot be seen; None on a host without AMD GPUs."""
        return self._reason or None

    def _open(self) -> None:
        try:
            smi = importlib.import_module("amdsmi")
            smi.amdsmi_init()
            handles = list(smi.amdsmi_get_processor_handles())
        except ModuleNotFoundError:
            self._explain("the Python library amdsmi is not installed (it comes with ROCm, /opt/rocm/share/amd_smi).")
            return
        except Exception as error:  # amdsmi raises KeyError, OSError or its own types while it looks for its library
            self._explain(f"amdsmi cannot be used: {type(error).__name__}: {error}.")
            return
        chosen = [(index, handle) for index, handle in enumerate(handles)]
        self._devices = [one for one in chosen if not self._indices or one[0] in self._indices]
        self._smi, self._open_now = smi, bool(self._devices)
        if not self._devices:
            self._explain("amdsmi sees no GPU.")

    def _explain(self, reason: str) -> None:
        self._reason = reason if has_amd(self._root) else ""

    def read(self, now: float) -> Reading:
        """One row about the GPUs, as samples; `last_row` keeps the row itself for `record`."""
        started = time.monotonic()
        gpus = [self._row(index, handle) for index, handle in self._devices]
        row: dict[str, Any] = {"t": round(now, 3), "source": self.name, "driver": self._driver, "gpus": gpus}
        self.last_row = row
        if not any(len(gpu) > 1 + len(self._static.get(gpu["gpu"], {})) for gpu in gpus):
            return Reading(self.name, now, error="No AMD GPU answered; see `amd-smi static` and the kernel log.")
        return self._rows.reading(row, time.monotonic() - started)

    def _get(self, index: int, name: str, *arguments: Any, key: str = "") -> Any:
        """The answer of one call, None where the device does not support it: then it is asked for no more."""
        label = (index, key or name)
        function = getattr(self._smi, name, None)
        if function is None or label in self._refused:
            return None
        try:
            return function(*arguments)
        except Exception as error:  # the types of amdsmi's errors differ by version
            if "NOT_SUPPORTED" in str(error).upper().replace(" ", "_") or isinstance(error, TypeError):
                self._refused.add(label)
            return None

    def _row(self, index: int, handle: Any) -> dict[str, Any]:
        if index not in self._static:
            self._static[index] = self._identity(index, handle)
        row: dict[str, Any] = {"gpu": index, **self._static[index]}
        usage = _dict(self._get(index, "amdsmi_get_gpu_vram_usage", handle))
        used, total = usage.get("vram_used"), usage.get("vram_total")
        if is_number(used) and is_number(total):
            row["mem"] = {"used": used * _MIB, "total": total * _MIB, "free": (total - used) * _MIB}
        busy = _dict(self._get(index, "amdsmi_get_gpu_activity", handle)).get("gfx_activity")
        if is_number(busy):
            row["util"] = busy / 100
        self._power(index, handle, row)
        row["temp"] = self._temperatures(index, handle)
        self._clocks(index, handle, row)
        flags = _dict(self._get(index, "amdsmi_get_violation_status", handle))
        if any(isinstance(flags.get(flag), bool) for flag in _VIOLATIONS):
            row["reasons"] = sorted({reason for flag, reason in _VIOLATIONS.items() if flags.get(flag) is True})
        self._health(index, handle, row)
        row["procs"] = self._processes(index, handle)
        return {key: value for key, value in row.items() if value is not None and value != {}}

    def _identity(self, index: int, handle: Any) -> dict[str, Any]:
        self._driver = self._driver or str(
            _dict(self._get(index, "amdsmi_get_gpu_driver_info", handle)).get("driver_version", "")
        )
        asic = _dict(self._get(index, "amdsmi_get_gpu_asic_info", handle))
        identity = {
            "uuid": self._get(index, "amdsmi_get_gpu_device_uuid", handle),
            "pci": self._get(index, "amdsmi_get_gpu_device_bdf", handle),
            "name": asic.get("market_name"),
            "compute_capability": asic.get("target_graphics_version"),
        }
        return {key: str(value) for key, value in identity.items() if value}

    def _power(self, index: int, handle: Any, row: dict[str, Any]) -> None:
        power = _dict(self._get(index, "amdsmi_get_power_info", handle))
        names = ("socket_power", "current_socket_power", "average_socket_power")
        row["power"] = next((power[name] for name in names if is_number(power.get(name)) and power[name] > 0), None)
        limit = power.get("power_limit")
        if is_number(limit) and limit > 0:
            row["power_limit"] = limit / 1e6 if limit > 1e5 else limit  # newer versions give microwatts
        energy = _dict(self._get(index, "amdsmi_get_energy_count", handle))
        ticks, size = energy.get("energy_accumulator", energy.get("power")), energy.get("counter_resolution")
        if is_number(ticks) and is_number(size):
            row["energy"] = ticks * size / 1e6

    def _temperatures(self, index: int, handle: Any) -> dict[str, float]:
        kinds = getattr(self._smi, "AmdSmiTemperatureType", None)
        metric = getattr(getattr(self._smi, "AmdSmiTemperatureMetric", None), "CURRENT", None)
        found: dict[str, float] = {}
        for sensor, names in _SENSORS.items():
            for name in names:
                kind = getattr(kinds, name, None)
                if kind is None or sensor in found:
                    continue
                value = self._get(index, "amdsmi_get_temp_metric", handle, kind, metric, key=f"temperature {name}")
                if is_number(value):
                    found[sensor] = value / 1000 if value > 1000 else value  # older versions give millidegrees
        return found

    def _clocks(self, index: int, handle: Any, row: dict[str, Any]) -> None:
        kinds = getattr(self._smi, "AmdSmiClkType", None)
        now: dict[str, float] = {}
        top: dict[str, float] = {}
        for domain, name in (("sm", "GFX"), ("memory", "MEM")):
            kind = getattr(kinds, name, None)
            clock = _dict(self._get(index, "amdsmi_get_clock_info", handle, kind, key=f"clock {name}")) if kind else {}
            current, highest = clock.get("clk", clock.get("cur_clk")), clock.get("max_clk")
            if is_number(current):
                now[domain] = current * 1e6
            if is_number(highest):
                top[domain] = highest * 1e6
        row["clock"], row["clock_max"] = now, top

    def _health(self, index: int, handle: Any, row: dict[str, Any]) -> None:
        counts = _dict(self._get(index, "amdsmi_get_gpu_total_ecc_count", handle))
        kinds = {"corrected": "correctable_count", "uncorrected": "uncorrectable_count"}
        row["ecc"] = {kind: counts[name] for kind, name in kinds.items() if is_number(counts.get(name))}
        link = _dict(self._get(index, "amdsmi_get_pcie_info", handle))
        metric, static = _dict(link.get("pcie_metric")), _dict(link.get("pcie_static"))
        lanes = {"current": metric.get("pcie_width"), "max": static.get("max_pcie_width")}
        row["pcie_lanes"] = {which: width for which, width in lanes.items() if is_number(width)}
        replays = metric.get("pcie_replay_count")
        row["pcie_replays"] = replays if is_number(replays) else None

    def _processes(self, index: int, handle: Any) -> list[dict[str, Any]] | None:
        listed = self._get(index, "amdsmi_get_gpu_process_list", handle)
        if not isinstance(listed, list):
            return None
        held: list[tuple[int, int | None]] = []
        for process in listed:
            pid = _dict(process).get("pid")
            size = _dict(_dict(process).get("memory_usage")).get("vram_mem")
            if isinstance(pid, int):
                held.append((pid, int(size) if is_number(size) else None))
        return process_rows(held, self._family(), self._host_pids, self._root / "proc")

    def close(self) -> None:
        """Give the library back."""
        if self._open_now:
            self._open_now = False
            self._get(-1, "amdsmi_shut_down")


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
