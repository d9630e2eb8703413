"""Turns rows about GPUs (the lines of `gpu.jsonl.gz`) into canonical samples, events and facts.

The NVML and AMD sources and recordings share this. A row is one look: `{"t", "source": "nvml"|"amdsmi", "driver",
"gpus": [...], "xids": [...], "lost": [...]}`; figures are in base units (bytes, watts, joules, hertz, seconds, ratios).
A row with `"silent": SECONDS` says that the driver has not answered for so long.
Only faults become events (`xid`, `gpu_lost`): processes and active reasons are series here, and events of every look
would make rules over logs believe that a log was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from infradoc.model import Reading, Sample
from infradoc.sources.rows import is_number
from infradoc.sources.xid import xid
from infradoc_rules.model import Event, Fact

ROW_FILE = "gpu.jsonl.gz"
REASONS = (
    "idle",
    "clocks_setting",
    "power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal",
    "hw_thermal",
    "power_brake",
    "display",
)
# Key of a GPU's row -> (signal, label of the inner key; "" for a plain number).
_FIGURES = {
    "util": ("gpu_utilization_ratio", ""),
    "sm_active": ("gpu_sm_active_ratio", ""),
    "tensor_active": ("gpu_tensor_active_ratio", ""),
    "dram_active": ("gpu_dram_active_ratio", ""),
    "power": ("gpu_power_watts", ""),
    "power_limit": ("gpu_power_limit_watts", ""),
    "energy": ("gpu_energy_joules_total", ""),
    "temp": ("gpu_temperature_celsius", "sensor"),
    "clock": ("gpu_clock_hertz", "domain"),
    "clock_max": ("gpu_clock_max_hertz", "domain"),
    "throttled": ("gpu_throttled_seconds_total", "reason"),
    "ecc": ("gpu_ecc_errors_total", "kind"),
    "remapped": ("gpu_remapped_rows_total", "kind"),
    "pcie": ("gpu_pcie_bytes_per_second", "direction"),
    "pcie_replays": ("gpu_pcie_replays_total", ""),
    "pcie_generation": ("gpu_pcie_link_generation", "which"),
    "pcie_lanes": ("gpu_pcie_link_lanes", "which"),
    "nvlink": ("gpu_nvlink_bytes_total", "direction"),
    "nvlink_errors": ("gpu_nvlink_errors_total", "kind"),
}
_MEMORY = {
    "used": "gpu_memory_used_bytes",
    "free": "gpu_memory_free_bytes",
    "total": "gpu_memory_size_bytes",
    "reserved": "gpu_memory_reserved_bytes",
}
PROVIDES = frozenset(
    {
        *(signal for signal, _ in _FIGURES.values()),
        *_MEMORY.values(),
        "gpu_process_memory_bytes",
        "gpu_throttle_active",
        "gpu_xid_errors_total",
        "gpu_info",
    }
)
# What is told of a GPU that the server does not use: a fault may spread over the link or the bus, its load does not.
_FAULTS = ("ecc", "remapped", "nvlink_errors")
_IDENTITY = ("gpu", "uuid", "name", "compute_capability", "mig")
_Put = Callable[..., None]
_Labels = tuple[tuple[str, str], ...]


class GpuRows:
    """Converts rows in order of time. Keeps how often each Xid was seen, which GPUs are lost, and the server's own.

    Where the server's processes are seen on some GPUs, the others count only with their faults: a neighbour on another
    GPU takes nothing from the server, and an idle GPU beside it would halve every mean.
    """

    def __init__(self) -> None:
        self._xids: dict[_Labels, int] = {}
        self._shown: set[_Labels] = set()
        self._lost: set[int] = set()
        self._own: set[int] = set()
        self._last: float | None = None
        self._order = 0

    def reading(self, row: Mapping[str, Any], seconds: float = 0.0) -> Reading:
        """What one row says. It is a failed one when no GPU answered; `seconds` is how long the look took."""
        name, time = row_source(row), float(row["t"])
        gpus = [gpu for gpu in _list(row.get("gpus")) if _is_index(gpu.get("gpu"))]
        lost = [gpu for gpu in _list(row.get("lost")) if _is_index(gpu.get("gpu"))]
        events = [*self._xid_events(row, time, name), *self._lost_events(lost, time, name)]
        if lost and not gpus:
            return Reading(name, time, events=events, error=lost_sentence(lost))
        if is_number(row.get("silent")) and not gpus:
            return Reading(name, time, events=events, error=silent_sentence(name, float(row["silent"])))
        # While the server restarts, the GPUs that it had are still its own.
        if any("server" in _owners(gpu) for gpu in gpus):
            self._own = {int(gpu["gpu"]) for gpu in gpus if _owners(gpu) & {"server", "unknown"}}
        own = [gpu for gpu in gpus if not self._own or gpu["gpu"] in self._own]
        others = [gpu for gpu in gpus if self._own and gpu["gpu"] not in self._own]
        samples: list[Sample] = []
        for gpu in own + [{key: gpu[key] for key in (*_IDENTITY, *_FAULTS) if key in gpu} for gpu in others]:
            samples += gpu_samples(gpu, time, str(row.get("driver", "")))
        samples += self._xid_samples(time)
        if lost:  # the others go on, yet this source is not up: the first sample of a moment is the one that counts
            samples.append(Sample("target_up", (("source", name),), time, 0.0))
        self._last = time
        return Reading(name, time, samples, events, _facts(own, row, name), seconds)

    def _xid_events(self, row: Mapping[str, Any], time: float, source: str) -> Iterator[Event]:
        for seen in _list(row.get("xids")):
            code = seen.get("code")
            if not is_number(code):
                continue
            known = xid(int(code))
            fields: dict[str, Any] = {"code": int(code), "name": known.name}
            fields["detail"] = f"{known.severity}: {known.action}"
            fields.update({key: seen[key] for key in ("gpu", "pci") if isinstance(seen.get(key), int | str)})
            labels = (("gpu", str(seen.get("gpu", "?"))), ("uuid", str(seen.get("uuid", ""))), ("xid", str(int(code))))
            self._xids[labels] = self._xids.get(labels, 0) + 1
            self._order += 1
            text = f"Xid {int(code)} on GPU {seen.get('gpu', '?')}: {known.name}"
            yield Event("xid", self._order, fields, time, "serving", source, text)

    def _xid_samples(self, time: float) -> Iterator[Sample]:
        """Counters of Xid events. One that begins was 0 at the look before, so that its increase can be seen."""
        for labels, count in self._xids.items():
            if labels not in self._shown and self._last is not None:
                yield Sample("gpu_xid_errors_total", labels, self._last, 0.0)
            self._shown.add(labels)
            yield Sample("gpu_xid_errors_total", labels, time, float(count))

    def _lost_events(self, lost: list[Mapping[str, Any]], time: float, source: str) -> Iterator[Event]:
        now = {int(gpu["gpu"]) for gpu in lost}
        for gpu in lost:
            if int(gpu["gpu"]) in self._lost:
                continue
            fields = {key: gpu[key] for key in ("gpu", "pci") if isinstance(gpu.get(key), int | str)}
            self._order += 1
            yield Event("gpu_lost", self._order, fields, time, "serving", source, lost_sentence([gpu]))
        self._lost = now


def row_source(row: Mapping[str, Any]) -> str:
    """Which source made a row. A recording is of unknown making: no row may speak for another source."""
    return "amdsmi" if row.get("source") == "amdsmi" else "nvml"


def lost_sentence(lost: Sequence[Mapping[str, Any]]) -> str:
    """One sentence about GPUs that no longer answer."""
    names = ", ".join(f"{gpu['gpu']} ({gpu['pci']})" if gpu.get("pci") else str(gpu["gpu"]) for gpu in lost)
    code = lost[0].get("code")
    what = "needs a reset" if code == 16 else "is lost: it fell off the bus"
    return f"GPU {names} {what}; the kernel log names the cause (dmesg | grep -i xid)."


def silent_sentence(source: str, seconds: float) -> str:
    """One sentence about a driver that does not answer; `source` is the name of what asks it."""
    what = {"nvml": "NVML"}.get(source, source)
    return f"{what} has not answered for {seconds:.0f} s: the driver may hang; see the kernel log (dmesg)."


def gpu_samples(gpu: Mapping[str, Any], time: float, driver: str = "") -> list[Sample]:
    """Samples of one GPU's part of a row; keys that are missing or no numbers give none."""
    found: list[Sample] = []
    index, uuid = str(gpu["gpu"]), str(gpu.get("uuid", ""))

    def put(signal: str, value: Any, /, **labels: str) -> None:
        if is_number(value):
            pairs = {"gpu": index, "uuid": uuid, **labels}
            found.append(Sample(signal, tuple(sorted(pairs.items())), time, float(value)))

    for key, (name, label) in _FIGURES.items():
        if not label:
            put(name, gpu.get(key))
            continue
        for inner, value in _mapping(gpu.get(key)).items():
            put(name, value, **{label: str(inner)})
    _memory(gpu, put)
    reasons = gpu.get("reasons")
    if isinstance(reasons, list):  # with zeros: a mean over time needs the moments without the reason as well
        for reason in REASONS:
            put("gpu_throttle_active", float(reason in reasons), reason=reason)
    capability, mig = str(gpu.get("compute_capability", "")), str(gpu.get("mig", ""))
    put("gpu_info", 1, name=str(gpu.get("name", "")), driver=driver, compute_capability=capability, mig=mig)
    return found


def _memory(gpu: Mapping[str, Any], put: _Put) -> None:
    """Memory of the device, or of its MIG instances under their own uuid, and of each process."""
    for holder in (gpu, *_list(gpu.get("instances"))):
        labels = {"uuid": str(holder.get("uuid", ""))}
        for part, value in _mapping(holder.get("mem")).items():
            if part in _MEMORY:
                put(_MEMORY[part], value, **labels)
    for process in _list(gpu.get("procs")):
        pid, owner = str(process.get("pid", "")), str(process.get("owner", "unknown"))
        put("gpu_process_memory_bytes", process.get("bytes"), pid=pid, owner=owner)


def _owners(gpu: Mapping[str, Any]) -> set[str]:
    """Whose processes are on this GPU. One that cannot be told may be its own: Ray's workers are no children."""
    return {str(process.get("owner", "unknown")) for process in _list(gpu.get("procs"))}


def _facts(gpus: list[Mapping[str, Any]], row: Mapping[str, Any], source: str) -> list[Fact]:
    """What the server's devices are; a figure of several GPUs is the smallest."""
    if not gpus:
        return []
    facts = [Fact("gpu.count", len(gpus), "api", source)]
    facts += [Fact("gpu.name", str(gpu["name"]), "api", source) for gpu in gpus[:1] if gpu.get("name")]
    if row.get("driver"):
        facts.append(Fact("gpu.driver", str(row["driver"]), "api", source))
    for key in ("power_limit_max", "power_limit_default"):
        values = [float(gpu[key]) for gpu in gpus if is_number(gpu.get(key))]
        if values:
            facts.append(Fact(f"gpu.{key}_watts", min(values), "api", source))
    return facts


def _list(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
