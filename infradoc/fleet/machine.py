"""The machine under a server as rows: each GPU, the host, and the server's processes."""

from __future__ import annotations

from dataclasses import dataclass

from infradoc.signals.window import Match, increase, last_total, last_values
from infradoc_rules.model import SignalFrame

_RATE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One device; None where it does not say. Bytes, watts, degrees Celsius."""

    name: str
    utilization: float | None
    memory_used: float | None
    memory_size: float | None
    power: float | None
    temperature: float | None


@dataclass(frozen=True, slots=True)
class HostRow:
    """The host: cores busy out of `cpus`, load, memory in bytes, and the server's own memory and cores busy."""

    cpus: float | None
    busy_cores: float | None
    load: float | None
    memory_size: float | None
    memory_available: float | None
    server_memory: float | None
    server_cores: float | None

    @property
    def known(self) -> bool:
        """Whether anything of the host is seen."""
        return any(value is not None for value in (self.cpus, self.memory_size, self.server_memory))


def gpu_rows(frame: SignalFrame) -> list[GpuRow]:
    """All GPUs that are seen, by index."""
    names = {labels.get("gpu", ""): labels.get("name", "") for labels, _ in last_values(frame, "gpu_info", 1e9)}
    found = {**names, **{labels.get("gpu", ""): "" for labels, _ in last_values(frame, "gpu_memory_size_bytes")}}
    rows = []
    for gpu in sorted(found):
        rows.append(
            GpuRow(
                f"{gpu} {names.get(gpu, '')}".strip(),
                _of(frame, "gpu_utilization_ratio", gpu),
                _of(frame, "gpu_memory_used_bytes", gpu),
                _of(frame, "gpu_memory_size_bytes", gpu),
                _of(frame, "gpu_power_watts", gpu),
                _of(frame, "gpu_temperature_celsius", gpu),
            )
        )
    return rows


def host_row(frame: SignalFrame) -> HostRow:
    """The host as last seen."""
    return HostRow(
        last_total(frame, "host_cpus"),
        _rate(frame, "host_cpu_seconds_total", lambda labels: labels.get("mode") not in ("idle", "iowait")),
        last_total(frame, "host_load1"),
        last_total(frame, "host_memory_size_bytes"),
        last_total(frame, "host_memory_available_bytes"),
        last_total(frame, "proc_resident_memory_bytes"),
        _rate(frame, "proc_cpu_seconds_total", lambda labels: True),
    )


def _of(frame: SignalFrame, name: str, gpu: str) -> float | None:
    values = [value for labels, value in last_values(frame, name) if labels.get("gpu", "") == gpu]
    return max(values) if values else None


def _rate(frame: SignalFrame, name: str, match: Match) -> float | None:
    total: float | None = None
    for series in frame.select(name):
        if match(series.labels) and len(series.times) > 1:
            begin = max(float(series.times[0]), frame.now - _RATE_SECONDS)
            end = float(series.times[-1])
            rate = increase(series, begin, end) / (end - begin) if end > begin else 0.0
            total = (total or 0.0) + rate
    return total
