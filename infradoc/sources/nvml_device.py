"""One NVIDIA device as a row: what never changes is asked once, what changes slowly every few seconds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from infradoc.sources.nvml_calls import Calls, GpuGone
from infradoc.sources.nvml_fields import (
    ENERGY_MJ,
    MEMORY_TEMPERATURE,
    FieldReader,
    nvlink_bytes,
    nvlink_errors,
    pcie_bytes,
    throttled_seconds,
)
from infradoc.sources.nvml_gpm import Gpm
from infradoc.sources.nvml_identity import CLOCKS, identity, mig_instances, milli

SLOW_SECONDS = 5.0
PCIE_SECONDS = 10.0  # each of the two throughput calls waits 20 ms inside the driver
_MEMORY_V2 = 0x02000028
_DIE = 0
_ECC = {"corrected": 0, "uncorrected": 1}
_VOLATILE = 0
_REASONS = {
    0x1: "idle",
    0x2: "clocks_setting",
    0x4: "power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "power_brake",
    0x100: "display",
}
Held = Sequence[tuple[int, int | None]]  # (PID, bytes or None)


class NvmlDevice:
    """Reads one device. `lost` is the NVML code it went away with, None while it answers."""

    def __init__(self, nvml: Any, index: int) -> None:
        self.index = index
        self.calls = Calls(nvml)
        self.lost: int | None = None
        self.pci = ""
        self.uuid = ""
        self.handle: Any = None
        self._static: dict[str, Any] = {}
        self._slow: dict[str, Any] = {}
        self._next_slow = self._next_pcie = self._next_try = float("-inf")
        self._instances: list[tuple[str, Any]] = []
        self._before: tuple[float, dict[str, float]] | None = None
        self._fields: FieldReader | None = None
        self._gpm: Gpm | None = None

    def row(self, now: float, owners: Callable[[Held], list[dict[str, Any]]]) -> dict[str, Any] | None:
        """The device's part of a row; None while it is lost. `now` is Unix seconds."""
        if self.lost is not None and now < self._next_try:
            return None
        try:
            if self._fields is None and not self._open():
                return None
            row = {"gpu": self.index, **self._static, **self._fast(now, owners), **self._slowly(now)}
        except GpuGone as gone:
            self.lost = gone.code
            self._next_try = now + SLOW_SECONDS
            self._fields = self._gpm = None  # what comes back after a reset is opened anew
            return None
        self.lost = None
        return row

    def _open(self) -> bool:
        """Whether the device can be read at all; without rights to it, it cannot, and is not lost for that."""
        self.handle = self.calls.get("nvmlDeviceGetHandleByIndex", self.index)
        if self.handle is None:
            return False
        self._static = identity(self.calls, self.handle)
        self.uuid, self.pci = self._static.get("uuid", ""), self._static.get("pci", "")
        self._instances = mig_instances(self.calls, self.handle) if self._static["mig"] == "enabled" else []
        self._gpm = Gpm(self.calls, self.handle)
        self._fields = FieldReader.open(self.calls, self.handle)
        return True

    def _fast(self, now: float, owners: Callable[[Held], list[dict[str, Any]]]) -> dict[str, Any]:
        get, handle = self.calls.get, self.handle
        row: dict[str, Any] = self._memory()
        rates = get("nvmlDeviceGetUtilizationRates", handle)
        if rates is not None:
            row["util"] = rates.gpu / 100
        clocks = {
            name: get("nvmlDeviceGetClockInfo", handle, kind, key=f"clock {name}") for name, kind in CLOCKS.items()
        }
        row["clock"] = {name: mhz * 1e6 for name, mhz in clocks.items() if mhz is not None}
        bits = self.calls.first(
            "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons", arguments=(handle,)
        )
        if bits is not None:
            row["reasons"] = [name for bit, name in _REASONS.items() if bits & bit]
        row["power"] = milli(get("nvmlDeviceGetPowerUsage", handle))
        die = self.calls.first("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", arguments=(handle, _DIE))
        row["temp"] = {} if die is None else {"die": die}
        processes = get("nvmlDeviceGetComputeRunningProcesses", handle)
        if processes is not None:
            row["procs"] = self._apart(owners([(int(one.pid), one.usedGpuMemory) for one in processes]))
        row.update(self._from_fields(now, row["temp"]))
        row.update(self._gpm.read() if self._gpm is not None else {})
        return {key: value for key, value in row.items() if value is not None and value != {}}

    def _apart(self, procs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """On a device cut into MIG instances nobody can tell who shares the server's own, so nobody is "other"."""
        if not self._instances:
            return procs
        return [{**one, "owner": "unknown"} if one["owner"] == "other" else one for one in procs]

    def _memory(self) -> dict[str, Any]:
        """Memory of the device, or of each MIG instance: then the device's own figures need special rights."""
        if not self._instances:
            memory = self._memory_of(self.handle)
            return {"mem": memory} if memory else {}
        parts = [{"uuid": uuid, "mem": self._memory_of(handle)} for uuid, handle in self._instances]
        return {"instances": [part for part in parts if part["mem"]]}

    def _memory_of(self, handle: Any) -> dict[str, int]:
        found = self.calls.get("nvmlDeviceGetMemoryInfo", handle, _MEMORY_V2, key="memory v2")
        if found is None:
            found = self.calls.get("nvmlDeviceGetMemoryInfo", handle)
        parts = ("used", "free", "total", "reserved")
        return {} if found is None else {part: int(getattr(found, part)) for part in parts if hasattr(found, part)}

    def _from_fields(self, now: float, temperatures: dict[str, float]) -> dict[str, Any]:
        assert self._fields is not None
        fields = self._fields.read(self.handle)
        if (MEMORY_TEMPERATURE, 0) in fields:
            temperatures["memory"] = fields[MEMORY_TEMPERATURE, 0]
        found: dict[str, Any] = {
            "throttled": throttled_seconds(fields),
            "nvlink": nvlink_bytes(fields),
            "nvlink_errors": nvlink_errors(fields),
        }
        if (ENERGY_MJ, 0) in fields:
            found["energy"] = fields[ENERGY_MJ, 0] / 1000
        moved = pcie_bytes(fields)
        if self._before is not None and now > self._before[0]:
            elapsed = now - self._before[0]
            past = self._before[1]
            found["pcie"] = {
                way: (total - past[way]) / elapsed for way, total in moved.items() if total >= past.get(way, total + 1)
            }
        self._before = (now, moved)
        return found

    def _slowly(self, now: float) -> dict[str, Any]:
        """Figures of the last slow look, which is at most a few seconds old."""
        if now >= self._next_slow:
            self._next_slow = now + SLOW_SECONDS * 0.95
            self._slow = {**self._slow, **self._slow_look()}
        if now >= self._next_pcie and self._before is not None and not self._before[1]:
            self._next_pcie = now + PCIE_SECONDS * 0.95
            rates = {way: self._throughput(kind, way) for way, kind in (("tx", 0), ("rx", 1))}
            self._slow["pcie"] = {way: rate for way, rate in rates.items() if rate is not None}
        return {key: value for key, value in self._slow.items() if value is not None and value != {}}

    def _throughput(self, kind: int, way: str) -> float | None:
        value = self.calls.get("nvmlDeviceGetPcieThroughput", self.handle, kind, key=f"PCIe {way}")
        return None if value is None else value * 1024.0

    def _slow_look(self) -> dict[str, Any]:
        get, handle = self.calls.get, self.handle
        errors = {
            kind: get("nvmlDeviceGetTotalEccErrors", handle, number, _VOLATILE, key=f"ECC {kind}")
            for kind, number in _ECC.items()
        }
        generation, lanes = (
            get("nvmlDeviceGetCurrPcieLinkGeneration", handle),
            get("nvmlDeviceGetCurrPcieLinkWidth", handle),
        )
        widest = {
            "generation": self._slow.get("pcie_generation", {}).get("max"),
            "lanes": self._slow.get("pcie_lanes", {}).get("max"),
        }
        if widest["generation"] is None:
            widest["generation"] = get("nvmlDeviceGetMaxPcieLinkGeneration", handle)
            widest["lanes"] = get("nvmlDeviceGetMaxPcieLinkWidth", handle)
        return {
            "power_limit": milli(get("nvmlDeviceGetEnforcedPowerLimit", handle)),
            "ecc": _known(errors),
            "remapped": self._remapped(),
            "pcie_generation": _known({"current": generation, "max": widest["generation"]}),
            "pcie_lanes": _known({"current": lanes, "max": widest["lanes"]}),
            "pcie_replays": get("nvmlDeviceGetPcieReplayCounter", handle),
        }

    def _remapped(self) -> dict[str, float]:
        rows = self.calls.get("nvmlDeviceGetRemappedRows", self.handle)
        if rows is not None:
            return dict(zip(("corrected", "uncorrected", "pending", "failed"), map(float, rows), strict=True))
        pages = {  # before Ampere: retired pages, by what they were retired for
            kind: self.calls.get("nvmlDeviceGetRetiredPages", self.handle, cause, key=f"retired {kind}")
            for kind, cause in (("corrected", 0), ("uncorrected", 1))
        }
        return {kind: float(len(found)) for kind, found in pages.items() if found is not None}

    def close(self) -> None:
        """Give buffers back."""
        if self._gpm is not None and self.lost is None:
            with contextlib.suppress(GpuGone):
                self._gpm.close()


def _known(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
