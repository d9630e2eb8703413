"""`nvidia-smi -q`, whole or a display part of it (-d PERFORMANCE, CLOCK, POWER, ECC, ROW_REMAPPER, ...)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from infradoc.artefacts.kinds.nvidia_state import process_event, reading, reason_event, reason_of, state_event
from infradoc.artefacts.model import Segment
from infradoc.artefacts.spans import Span, runs
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Value

_TOP = lazy(r"^=+ ?NVSMI LOG ?=+$|^GPU (?:\d+: )?[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\s*$")
_REASONS = lazy(r"^\s*Clocks (?:Throttle|Event) Reasons(?: Counters)?\s*$")
# A part of the output without its head, and what `grep -i slowdown` leaves of the reasons.
_PART = lazy(r"^\s*(?:Remapped Rows|ECC Errors|Retired Pages)\s*$")
_REASON = lazy(
    r"^\s*(?:HW (?:Thermal |Power Brake )?Slowdown|SW Thermal Slowdown|SW Power Cap)\s*: (?:Not )?Active\s*$"
)
_SECTIONS = lazy(
    r"^\s*(?:(?:GPU |Module )?Power Readings|(?:Max |Applications )?Clocks|Utilization|Temperature|FB Memory Usage)\s*$"
)
_PAIR = lazy(r"^(?P<indent>\s*)(?P<key>[A-Z][\w .()/+-]{1,48}?)\s+: (?P<value>.*)$")
_SECTION = lazy(r"^(?P<indent>\s{4,})(?P<key>[A-Z][\w .()/-]{2,48}?)\s*$")
# a paste may have lost the indentation of its first level, or all of it
_HEADING = lazy(r"^(?P<indent>\s*)(?P<key>[A-Z][\w .()/-]{2,48}?)\s*$")
_GPU = lazy(r"^GPU (?:\d+: )?[0-9A-Fa-f]{4,8}:")
# (a word of the section, key) -> field of gpu_state and the unit of a bare number
_FIELDS: dict[tuple[str, str], str] = {
    ("", "Product Name"): "name",
    ("FB Memory Usage", "Total"): "total_bytes",
    ("FB Memory Usage", "Used"): "used_bytes",
    ("Utilization", "Gpu"): "utilization",
    ("Utilization", "GPU"): "utilization",
    ("Temperature", "GPU Current Temp"): "temperature",
    ("Temperature", "GPU Slowdown Temp"): "slowdown_temperature",
    ("Power Readings", "Power Draw"): "power_watts",
    ("Power Readings", "Average Power Draw"): "power_watts",
    ("Power Readings", "Instantaneous Power Draw"): "power_watts",
    ("Power Readings", "Power Limit"): "power_limit_watts",
    ("Power Readings", "Current Power Limit"): "power_limit_watts",
    ("Power Readings", "Enforced Power Limit"): "power_limit_watts",
    ("Power Readings", "Default Power Limit"): "power_default_watts",
    ("Clocks", "SM"): "clock_hertz",
    ("Max Clocks", "SM"): "clock_max_hertz",
}
_LANES = {("PCIe Generation", "Current"): "pcie_generation", ("PCIe Generation", "Max"): "pcie_generation_max"}
_LANES |= {("Link Width", "Current"): "pcie_width", ("Link Width", "Max"): "pcie_width_max"}
_UNCORRECTED = lazy(r"^(?:DRAM|SRAM) Uncorrectable|^Double Bit(?: ECC)?$|Uncorrectable Error$")


def spans(lines: Sequence[str]) -> list[Span]:
    """From the head, a device or the clocks reasons on, as long as lines are `key : value` or sections."""
    found = runs(lines, _mine, gap=2)
    cut = [(_first(lines, start, end), end) for start, end in found]
    return [(start, end) for start, end in cut if start < end]


def _first(lines: Sequence[str], start: int, end: int) -> int:
    opened = next((i for i in range(start, end) if _TOP.match(lines[i]) or _opens(lines[i])), end)
    if opened < end and _TOP.match(lines[opened]):
        return opened
    parts = opened < end or _has_parts(lines, start, end)
    return next((i for i in range(start, opened) if parts and _SECTIONS.match(lines[i])), opened)


def _has_parts(lines: Sequence[str], start: int, end: int) -> bool:
    return sum(_SECTIONS.match(lines[index]) is not None for index in range(start, end)) >= 2


def _opens(line: str) -> bool:
    """Whether a paste that lacks the head of its device may begin so."""
    return bool(_REASONS.match(line) or _PART.match(line) or _REASON.match(line))


def _mine(line: str) -> bool:
    return bool(_TOP.match(line) or _opens(line) or _SECTIONS.match(line) or _SECTION.match(line) or _PAIR.match(line))


@dataclass
class _Device:
    """What is read of one device so far."""

    gpu: int
    place: str
    text: str
    fields: dict[str, Value | None] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    process: dict[str, str] = field(default_factory=dict)


def events(segment: Segment) -> list[Event]:
    """A `gpu_state` for each device with what its parts say, its clocks reasons and processes."""
    out: list[Event] = []
    device: _Device | None = None
    path: list[tuple[int, str]] = []
    count = 0
    flat = not any(line[:1].isspace() for line in segment.lines)
    for index, line in enumerate(segment.lines):
        if _GPU.match(line) or (device is None and (_opens(line) or _SECTIONS.match(line))):
            out += _done(device)
            device, path = _Device(count, segment.place(index), line), []
            count += 1
        if device is None:
            continue
        pair = _PAIR.match(line)
        section = None if pair or _GPU.match(line) else _HEADING.match(line)
        if section:
            indent = len(line) - len(line.lstrip())
            path = [*(part for part in path if part[0] < indent), (indent, line.strip())]
        elif pair:
            path = path if flat else [part for part in path if part[0] < len(pair["indent"])]
            _take(device, [name for _, name in path], pair["key"], pair["value"].strip(), segment.place(index), line)
    return out + _done(device)


def _take(device: _Device, path: Sequence[str], key: str, value: str, place: str, line: str) -> None:
    if any("Reasons" in part for part in path) or _REASON.match(line):
        reason = reason_of(key)
        if reason and value == "Active":
            device.events.append(reason_event(device.gpu, reason, place, line.strip()))
        return
    if any(part == "Volatile" for part in path) and _uncorrected(path, key):
        count = reading(value) or 0
        device.fields["ecc_uncorrected"] = int(device.fields.get("ecc_uncorrected") or 0) + int(count)
    elif "Remapped Rows" in path or "Retired Pages" in path:
        _remapped(device, key, value)
    elif "Processes" in path or key.startswith("Process"):
        _process(device, key, value, place, line)
    elif key == "GPU Recovery Action" and value not in ("None", "N/A"):
        device.fields["failed"] = f"recovery action: {value}"
    elif path and (path[-1], key) in _LANES:
        lanes = value.rstrip("x")
        device.fields[_LANES[path[-1], key]] = int(lanes) if lanes.isdigit() else None
    elif key == "Performance State":
        device.fields["pstate"] = int(value[1:]) if value[1:].isdigit() else None
    else:
        _known(device, path, key, value)


def _known(device: _Device, path: Sequence[str], key: str, value: str) -> None:
    for (section, name), wanted in _FIELDS.items():
        if name == key and (not section or (path and (path[-1] == section or path[-1].endswith(f" {section}")))):
            if section == "Clocks" and path[-1] != "Clocks":
                continue  # "Max Clocks", "Applications Clocks"
            known = value if wanted == "name" else reading(value.replace(" C", ""))
            if known is not None and path[-1:] != ["Module Power Readings"]:
                device.fields[wanted] = known
    if key == "Product Name":
        device.text = value


def _uncorrected(path: Sequence[str], key: str) -> bool:
    if "Double Bit" in path:
        return key == "Total"
    return bool(_UNCORRECTED.match(key))


def _remapped(device: _Device, key: str, value: str) -> None:
    if key in ("Pending", "Pending Page Blacklist"):
        device.fields["remap_pending"] = value == "Yes"
    elif key == "Remapping Failure Occurred":
        device.fields["remap_failed"] = value == "Yes"


def _process(device: _Device, key: str, value: str, place: str, line: str) -> None:
    if key == "Process ID":
        device.process = {"pid": value}
    elif key == "Name":
        device.process["name"] = value
    elif key == "Used GPU Memory" and "pid" in device.process:
        name = device.process.get("name", "")
        device.events.append(process_event(device.gpu, device.process["pid"], name, reading(value), place, line))


def _done(device: _Device | None) -> list[Event]:
    if device is None:
        return []
    state = state_event({"gpu": device.gpu, "sample": 0, **device.fields}, device.place, device.text)
    return [state, *device.events]
