"""NVML field values: many figures of one device in one call, each with its own return code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from infradoc.sources.nvml_calls import Calls

ALL_LINKS = 0xFFFFFFFF  # as scope: the sum over all NVLink links
_MAX_LINKS = 72

# Field ids of nvml.h. Times are ns since driver load; 74 and 76 exist since Kepler, 269 to 271 since R560.
THROTTLED = {74: "power_cap", 76: "sync_boost", 269: "sw_thermal", 270: "hw_thermal", 271: "power_brake"}
THERMAL_OLD = 75  # one time for both kinds of thermal limit, where 269 and 270 are not known
MEMORY_TEMPERATURE = 82
ENERGY_MJ = 83
LINK_COUNT = 91
PCIE_BYTES = {197: "tx", 198: "rx"}
NVLINK_KIB = {138: "tx", 139: "rx"}
NVLINK_ERRORS = {161: "replay", 162: "recovery", 163: "crc"}
NVLINK_ERRORS_OLD = {52: "replay", 59: "recovery", 38: "crc", 45: "crc"}  # before Hopper: totals over all links

_SIGNED = {4: "sllVal", 5: "siVal"}
_UNSIGNED = {1: "uiVal", 2: "ulVal", 3: "ullVal", 6: "usVal"}
Key = tuple[int, int]  # (field id, scope)


@dataclass(frozen=True, slots=True)
class FieldReader:
    """Asks one device for a list of fields; those that it does not support are asked for once."""

    calls: Calls
    wanted: list[Key]

    @classmethod
    def open(cls, calls: Calls, handle: Any) -> FieldReader:
        """Find out which links there are. One call."""
        plain = [*THROTTLED, THERMAL_OLD, MEMORY_TEMPERATURE, ENERGY_MJ, *PCIE_BYTES]
        reader = cls(calls, [(LINK_COUNT, 0)])
        count = int(reader.read(handle).get((LINK_COUNT, 0), 0))
        wanted = [(field, 0) for field in plain]
        if count > 0:
            wanted += [(field, ALL_LINKS) for field in (*NVLINK_KIB, *NVLINK_ERRORS)]
            wanted += [(field, link) for field in NVLINK_ERRORS for link in range(min(count, _MAX_LINKS))]
            wanted += [(field, 0) for field in NVLINK_ERRORS_OLD]
        return cls(calls, wanted)

    def read(self, handle: Any) -> dict[Key, float]:
        """Values by (field, scope). One call, none when nothing is supported."""
        if not self.wanted:
            return {}
        values = self.calls.get("nvmlDeviceGetFieldValues", handle, list(self.wanted))
        if values is None:
            return {}
        found: dict[Key, float] = {}
        for key, value in zip(list(self.wanted), values, strict=True):
            if value.nvmlReturn == 0:
                found[key] = _number(value)
            elif value.nvmlReturn != 999:  # unknown error: perhaps only this time
                self.wanted.remove(key)
        # Where the driver sums over the links, asking 18 links one by one for the same figure would be most of a look.
        summed = {field for field, scope in found if scope == ALL_LINKS}
        self.wanted[:] = [key for key in self.wanted if key[1] == ALL_LINKS or key[0] not in summed]
        return found


def _number(value: Any) -> float:
    kind = int(value.valueType)
    name = "dVal" if kind == 0 else _SIGNED.get(kind) or _UNSIGNED.get(kind, "ullVal")
    return float(getattr(value.value, name))


def throttled_seconds(fields: dict[Key, float]) -> dict[str, float]:
    """Seconds held down by reason, since driver load."""
    found = {name: fields[field, 0] / 1e9 for field, name in THROTTLED.items() if (field, 0) in fields}
    if not {"sw_thermal", "hw_thermal"} & found.keys() and (THERMAL_OLD, 0) in fields:
        found["sw_thermal"] = fields[THERMAL_OLD, 0] / 1e9
    return found


def nvlink_bytes(fields: dict[Key, float]) -> dict[str, float]:
    """Bytes moved over all links by direction."""
    return {way: fields[field, ALL_LINKS] * 1024 for field, way in NVLINK_KIB.items() if (field, ALL_LINKS) in fields}


def nvlink_errors(fields: dict[Key, float]) -> dict[str, float]:
    """Link errors by kind: the sum the driver gives, else the sum over links, else the older totals."""
    found: dict[str, float] = {}
    for field, kind in NVLINK_ERRORS.items():
        links = [value for (one, scope), value in fields.items() if one == field and scope != ALL_LINKS]
        if (field, ALL_LINKS) in fields:
            found[kind] = fields[field, ALL_LINKS]
        elif links:
            found[kind] = sum(links)
    if not found:
        for field, kind in NVLINK_ERRORS_OLD.items():
            if (field, 0) in fields:
                found[kind] = found.get(kind, 0.0) + fields[field, 0]
    return found


def pcie_bytes(fields: dict[Key, float]) -> dict[str, float]:
    """Bytes moved over PCIe by direction since driver load."""
    return {way: fields[field, 0] for field, way in PCIE_BYTES.items() if (field, 0) in fields}
