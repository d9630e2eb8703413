"""One snapshot of every NVML call that the agent makes, on an idle and on a busy device."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from ctypes import byref, c_uint, c_ulonglong, c_void_p

import torch

from infradoc_engine.gpu_check.look import Look, Row
from infradoc_engine.gpu_check.nvml_calls import (
    CLOCKS,
    MEMORY_V2,
    TEMPERATURE_V1,
    EventData,
    Memory,
    MemoryV2,
    Nvml,
    PciInfo,
    Temperature,
    Utilization,
    gpm,
)

ALL_LINKS = 0xFFFFFFFF
PLAIN_FIELDS = (74, 75, 76, 269, 270, 271, 82, 83, 91, 185, 186, 197, 198, 230)
LINK_FIELDS = (138, 139, 161, 162, 163)
OLD_LINK_FIELDS = (38, 45, 52, 59)
XID = 0x8


def run(look: Look) -> Iterator[Row]:
    """A row a call: {"when", "call", "code", "value"}. Raises OSError where the library is missing, unless dry."""
    try:
        nvml = Nvml()
    except OSError as error:
        if not look.dry:
            raise
        yield {"skipped": str(error)}
        return
    try:
        handle = nvml.device(0)
        yield from _all(nvml, handle, "idle")
        if look.device.type == "cuda":
            _keep_busy(look)
            yield from _all(nvml, handle, "busy")
            torch.cuda.synchronize()
    finally:
        nvml.close()


def _keep_busy(look: Look) -> None:
    """Queues a second or so of matrix products: the snapshot is taken while they run."""
    x = torch.randn(8192, 8192, dtype=torch.bfloat16, device=look.device)
    x = (x @ x).clamp_(-1, 1)
    torch.cuda.synchronize()  # the first product brings its library
    start = time.monotonic()
    for _ in range(50):
        x = (x @ x).clamp_(-1, 1)
    torch.cuda.synchronize()
    for _ in range(min(20_000, int(50 * 2.0 / max(time.monotonic() - start, 1e-3)))):
        x = (x @ x).clamp_(-1, 1)
    time.sleep(0.3)  # utilisation is that of the past sixth of a second to second


def _all(nvml: Nvml, handle: c_void_p, when: str) -> Iterator[Row]:
    for row in _calls(nvml, handle):
        yield {"when": when, **row}


def _calls(nvml: Nvml, handle: c_void_p) -> Iterator[Row]:
    yield nvml.number("nvmlDeviceGetCount_v2")
    yield nvml.text("nvmlSystemGetDriverVersion")
    yield from _identity(nvml, handle)
    yield nvml.structure("nvmlDeviceGetMemoryInfo", handle, out=Memory())
    yield nvml.structure("nvmlDeviceGetMemoryInfo_v2", handle, out=MemoryV2(version=MEMORY_V2))
    yield nvml.structure("nvmlDeviceGetUtilizationRates", handle, out=Utilization())
    for name, kind in CLOCKS.items():
        yield nvml.number("nvmlDeviceGetClockInfo", handle, c_uint(kind), label=name)
    for call in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
        yield nvml.number(call, handle, kind=c_ulonglong)
    yield nvml.number("nvmlDeviceGetPowerUsage", handle)
    yield nvml.number("nvmlDeviceGetEnforcedPowerLimit", handle)
    yield nvml.structure("nvmlDeviceGetTemperatureV", handle, out=Temperature(version=TEMPERATURE_V1))
    yield nvml.number("nvmlDeviceGetTemperature", handle, c_uint(0))
    yield nvml.processes(handle)
    yield from _errors(nvml, handle)
    yield from _pcie(nvml, handle)
    yield from nvml.fields(handle, _fields())
    yield from gpm(nvml, handle, lambda: time.sleep(0.2))
    yield from _events(nvml, handle)


def _identity(nvml: Nvml, handle: c_void_p) -> Iterator[Row]:
    yield nvml.text("nvmlDeviceGetUUID", handle)
    yield nvml.text("nvmlDeviceGetName", handle)
    yield nvml.structure("nvmlDeviceGetPciInfo_v3", handle, out=PciInfo())
    yield nvml.numbers("nvmlDeviceGetCudaComputeCapability", handle, count=2, kind=ctypes.c_int)
    for name, kind in CLOCKS.items():
        yield nvml.number("nvmlDeviceGetMaxClockInfo", handle, c_uint(kind), label=name)
    yield nvml.numbers("nvmlDeviceGetPowerManagementLimitConstraints", handle, count=2)
    yield nvml.number("nvmlDeviceGetPowerManagementDefaultLimit", handle)
    yield nvml.numbers("nvmlDeviceGetMigMode", handle, count=2)
    yield nvml.number("nvmlDeviceGetMaxMigDeviceCount", handle)
    instance = c_void_p()
    code = nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, c_uint(0), byref(instance))
    yield {"call": "nvmlDeviceGetMigDeviceHandleByIndex", "code": code, "value": None}


def _errors(nvml: Nvml, handle: c_void_p) -> Iterator[Row]:
    for name, kind in (("corrected", 0), ("uncorrected", 1)):
        for span, counter in (("volatile", 0), ("aggregate", 1)):
            yield nvml.number(
                "nvmlDeviceGetTotalEccErrors",
                handle,
                c_uint(kind),
                c_uint(counter),
                kind=c_ulonglong,
                label=f"{name} {span}",
            )
    yield nvml.numbers("nvmlDeviceGetRemappedRows", handle, count=4)
    yield nvml.pages(handle, 0)
    yield nvml.pages(handle, 1)


def _pcie(nvml: Nvml, handle: c_void_p) -> Iterator[Row]:
    for what in ("LinkGeneration", "LinkWidth"):
        for which in ("Curr", "Max"):
            yield nvml.number(f"nvmlDeviceGet{which}Pcie{what}", handle)
    yield nvml.number("nvmlDeviceGetPcieReplayCounter", handle)
    for name, kind in (("tx", 0), ("rx", 1)):
        yield nvml.number("nvmlDeviceGetPcieThroughput", handle, c_uint(kind), label=name)


def _fields() -> list[tuple[int, int]]:
    wanted = [(field, 0) for field in (*PLAIN_FIELDS, *OLD_LINK_FIELDS)]
    wanted += [(field, ALL_LINKS) for field in LINK_FIELDS]
    return wanted + [(field, link) for field in LINK_FIELDS[2:] for link in range(2)]


def _events(nvml: Nvml, handle: c_void_p) -> Iterator[Row]:
    events = c_void_p()
    code = nvml.call("nvmlEventSetCreate", byref(events))
    yield {"call": "nvmlEventSetCreate", "code": code, "value": None}
    if code:
        return
    code = nvml.call("nvmlDeviceRegisterEvents", handle, c_ulonglong(XID), events)
    yield {"call": "nvmlDeviceRegisterEvents", "code": code, "value": None}
    yield _wait(nvml, events)
    nvml.call("nvmlEventSetFree", events)


def _wait(nvml: Nvml, events: c_void_p) -> Row:
    """Without waiting: the code of an empty set is what matters."""
    event = EventData()
    code = nvml.call("nvmlEventSetWait_v2", events, byref(event), c_uint(0))
    return {"call": "nvmlEventSetWait_v2", "code": code, "value": event.eventData if code == 0 else None}
