"""NVML through ctypes alone: every call that the agent's GPU source makes, its return code and what it filled in.

Layouts as in nvml.h; a test compares them with those of nvidia-ml-py. A call that the library lacks has code 13, as
nvidia-ml-py says it (function not found).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from ctypes import byref, c_char, c_double, c_int, c_longlong, c_uint, c_ulonglong, c_void_p, sizeof
from typing import Any

FUNCTION_NOT_FOUND = 13
INSUFFICIENT_SIZE = 7
MOST_PROCESSES = 64
MOST_METRICS = 512  # of a GPM request; newer drivers know of more than older ones

Row = dict[str, Any]


class Utilization(ctypes.Structure):
    _fields_ = [("gpu", c_uint), ("memory", c_uint)]


class Memory(ctypes.Structure):
    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class MemoryV2(ctypes.Structure):
    _fields_ = [
        ("version", c_uint),
        ("total", c_ulonglong),
        ("reserved", c_ulonglong),
        ("free", c_ulonglong),
        ("used", c_ulonglong),
    ]


class ProcessInfo(ctypes.Structure):
    _fields_ = [
        ("pid", c_uint),
        ("usedGpuMemory", c_ulonglong),
        ("gpuInstanceId", c_uint),
        ("computeInstanceId", c_uint),
    ]


class FieldValue(ctypes.Structure):
    _fields_ = [
        ("fieldId", c_uint),
        ("scopeId", c_uint),
        ("timestamp", c_longlong),
        ("latencyUsec", c_longlong),
        ("valueType", c_uint),
        ("nvmlReturn", c_uint),
        ("value", c_ulonglong),  # a union in nvml.h
    ]


class PciInfo(ctypes.Structure):
    _fields_ = [
        ("busIdLegacy", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("pciDeviceId", c_uint),
        ("pciSubSystemId", c_uint),
        ("busId", c_char * 32),
    ]


class Temperature(ctypes.Structure):
    _fields_ = [("version", c_uint), ("sensorType", c_uint), ("temperature", c_int)]


class GpmSupport(ctypes.Structure):
    _fields_ = [("version", c_uint), ("isSupportedDevice", c_uint)]


class GpmMetric(ctypes.Structure):
    _fields_ = [("metricId", c_uint), ("nvmlReturn", c_uint), ("value", c_double), ("metricInfo", c_void_p * 3)]


class GpmMetricsGet(ctypes.Structure):
    _fields_ = [
        ("version", c_uint),
        ("numMetrics", c_uint),
        ("sample1", c_void_p),
        ("sample2", c_void_p),
        ("metrics", GpmMetric * MOST_METRICS),
    ]


class EventData(ctypes.Structure):
    _fields_ = [
        ("device", c_void_p),
        ("eventType", c_ulonglong),
        ("eventData", c_ulonglong),
        ("gpuInstanceId", c_uint),
        ("computeInstanceId", c_uint),
    ]


class Nvml:
    """The library, opened. Raises OSError when it is not there, RuntimeError when it does not start."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        code = self.call("nvmlInitWithFlags", c_uint(0))
        if code:
            raise RuntimeError(f"nvmlInitWithFlags returned {code}")

    def call(self, name: str, *arguments: Any) -> int:
        """The return code of a function of nvml.h."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            return FUNCTION_NOT_FOUND
        function.restype = c_int
        return int(function(*arguments))

    def close(self) -> None:
        """Gives the library back."""
        self.call("nvmlShutdown")

    def device(self, index: int) -> c_void_p:
        """A handle. Raises RuntimeError with the code."""
        handle = c_void_p()
        code = self.call("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(handle))
        if code:
            raise RuntimeError(f"nvmlDeviceGetHandleByIndex_v2({index}) returned {code}")
        return handle

    # -- calls by the shape of their answer; each row: call, code, value (None unless the code is 0) ------------------

    def number(self, name: str, *inputs: Any, kind: Any = c_uint, label: str = "") -> Row:
        """One number after the inputs."""
        out = kind()
        code = self.call(name, *inputs, byref(out))
        return _row(name, code, out.value if code == 0 else None, label)

    def numbers(self, name: str, *inputs: Any, count: int, kind: Any = c_uint) -> Row:
        """Several numbers after the inputs."""
        outs = [kind() for _ in range(count)]
        code = self.call(name, *inputs, *(byref(out) for out in outs))
        return _row(name, code, [out.value for out in outs] if code == 0 else None)

    def text(self, name: str, *inputs: Any) -> Row:
        """Text of at most 96 bytes."""
        buffer = ctypes.create_string_buffer(96)
        code = self.call(name, *inputs, buffer, c_uint(96))
        return _row(name, code, buffer.value.decode("utf-8", "replace") if code == 0 else None)

    def structure(self, name: str, *inputs: Any, out: ctypes.Structure) -> Row:
        """A structure after the inputs."""
        code = self.call(name, *inputs, byref(out))
        return _row(name, code, as_dict(out) if code == 0 else None)

    def processes(self, handle: c_void_p) -> Row:
        """PIDs and bytes of those that compute on the device."""
        name, count = "nvmlDeviceGetComputeRunningProcesses_v3", c_uint(MOST_PROCESSES)
        found = (ProcessInfo * MOST_PROCESSES)()
        code = self.call(name, handle, byref(count), found)
        return _row(name, code, [as_dict(one) for one in found[: count.value]] if code == 0 else None)

    def fields(self, handle: c_void_p, wanted: list[tuple[int, int]]) -> list[Row]:
        """Field values by (id, scope): one call, each with its own code."""
        values = (FieldValue * len(wanted))()
        for value, (field, scope) in zip(values, wanted, strict=True):
            value.fieldId, value.scopeId = field, scope
        code = self.call("nvmlDeviceGetFieldValues", handle, c_int(len(wanted)), values)
        rows = [_row("nvmlDeviceGetFieldValues", code, None)]
        if code == 0:
            rows += [
                _row(f"field {v.fieldId}:{v.scopeId}", v.nvmlReturn, _union(v) if v.nvmlReturn == 0 else None)
                | {"type": v.valueType}
                for v in values
            ]
        return rows

    def pages(self, handle: c_void_p, cause: int) -> Row:
        """How many pages were retired for a cause."""
        name, count = "nvmlDeviceGetRetiredPages", c_uint(0)
        code = self.call(name, handle, c_uint(cause), byref(count), None)
        return _row(name, code, count.value if code in (0, INSUFFICIENT_SIZE) else None, f"cause {cause}")


def as_dict(structure: Any) -> Row:
    """Fields of a structure, text decoded."""
    found = {name: getattr(structure, name) for name, *_ in structure._fields_}
    return {
        name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value for name, value in found.items()
    }


def _row(name: str, code: int, value: Any, label: str = "") -> Row:
    return {"call": name, **({"for": label} if label else {}), "code": code, "value": value}


def _union(value: FieldValue) -> float:
    """By the type the driver says: double, unsigned 32, long, unsigned 64, signed 64, signed 32, unsigned 16."""
    kinds: dict[int, Any] = {0: c_double, 1: c_uint, 4: c_longlong, 5: c_int, 6: ctypes.c_ushort}
    kind = kinds.get(value.valueType, c_ulonglong)
    return float(kind.from_buffer_copy(c_ulonglong(value.value)).value)


def gpm(nvml: Nvml, handle: c_void_p, wait: Callable[[], None]) -> Iterator[Row]:
    """Metrics of Hopper and newer between two samples, with `wait` between them."""
    support = GpmSupport(version=1)
    row = nvml.structure("nvmlGpmQueryDeviceSupport", handle, out=support)
    yield row
    if row["code"] or not support.isSupportedDevice:
        return
    samples = [c_void_p(), c_void_p()]
    for sample in samples:
        yield _row("nvmlGpmSampleAlloc", nvml.call("nvmlGpmSampleAlloc", byref(sample)), None)
    try:
        for sample in samples:
            yield _row("nvmlGpmSampleGet", nvml.call("nvmlGpmSampleGet", handle, sample), None)
            wait()
        request = GpmMetricsGet(version=1, sample1=samples[0], sample2=samples[1])
        wanted = (1, 2, 3, 5, 10, 20, 21, 60, 61)
        request.numMetrics = len(wanted)
        for place, metric in enumerate(wanted):
            request.metrics[place].metricId = metric
        code = nvml.call("nvmlGpmMetricsGet", byref(request))
        yield _row("nvmlGpmMetricsGet", code, None)
        for one in request.metrics[: len(wanted)] if code == 0 else ():
            yield _row(f"gpm {one.metricId}", one.nvmlReturn, one.value if one.nvmlReturn == 0 else None)
    finally:
        for sample in samples:
            nvml.call("nvmlGpmSampleFree", sample)


def driver_and_clocks() -> Row:
    """For the environment's row; empty where there is no library."""
    try:
        nvml = Nvml()
    except (OSError, RuntimeError):
        return {}
    try:
        handle = nvml.device(0)
        clocks = {name: nvml.number("nvmlDeviceGetMaxClockInfo", handle, c_uint(kind)) for name, kind in CLOCKS.items()}
        return {
            "driver": nvml.text("nvmlSystemGetDriverVersion")["value"],
            "max_clock_mhz": {name: row["value"] for name, row in clocks.items()},
            "power_limit_mw": nvml.number("nvmlDeviceGetEnforcedPowerLimit", handle)["value"],
        }
    except RuntimeError:
        return {}
    finally:
        nvml.close()


CLOCKS = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}
MEMORY_V2 = sizeof(MemoryV2) | 2 << 24
TEMPERATURE_V1 = sizeof(Temperature) | 1 << 24
