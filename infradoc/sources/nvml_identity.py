"""What an NVIDIA device is: asked once when it is opened."""

from __future__ import annotations

from typing import Any

from infradoc.sources.nvml_calls import Calls

CLOCKS = {"sm": 1, "memory": 2}  # nvmlClockType_t


def identity(calls: Calls, handle: Any) -> dict[str, Any]:
    """The part of a row that never changes: names, capability, highest clocks, power limits, MIG mode."""
    get = calls.get
    found: dict[str, Any] = {
        "uuid": text(get("nvmlDeviceGetUUID", handle)),
        "pci": text(getattr(get("nvmlDeviceGetPciInfo", handle), "busId", "")),
        "name": text(get("nvmlDeviceGetName", handle)),
    }
    capability = get("nvmlDeviceGetCudaComputeCapability", handle)
    if capability is not None:
        found["compute_capability"] = f"{capability[0]}.{capability[1]}"
    clocks = {name: get("nvmlDeviceGetMaxClockInfo", handle, kind, key=f"max {name}") for name, kind in CLOCKS.items()}
    found["clock_max"] = {name: mhz * 1e6 for name, mhz in clocks.items() if mhz is not None}
    limits = get("nvmlDeviceGetPowerManagementLimitConstraints", handle)
    found["power_limit_max"] = milli(limits[-1] if limits else None)
    found["power_limit_default"] = milli(get("nvmlDeviceGetPowerManagementDefaultLimit", handle))
    mode = get("nvmlDeviceGetMigMode", handle)
    found["mig"] = "none" if mode is None else "enabled" if mode[0] == 1 else "disabled"
    return {key: value for key, value in found.items() if value not in (None, "", {})}


def mig_instances(calls: Calls, handle: Any) -> list[tuple[str, Any]]:
    """Uuid and handle of each MIG instance; their number changes only when someone cuts the device anew."""
    found = []
    for place in range(int(calls.get("nvmlDeviceGetMaxMigDeviceCount", handle) or 0)):
        instance = calls.get("nvmlDeviceGetMigDeviceHandleByIndex", handle, place, key=f"mig {place}")
        if instance is not None:
            found.append((text(calls.get("nvmlDeviceGetUUID", instance)), instance))
    return found


def milli(value: Any) -> float | None:
    """A figure that NVML gives in thousandths (mW), in units."""
    return None if value is None else value / 1000


def text(value: Any) -> str:
    """A text of NVML, which older bindings give as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
