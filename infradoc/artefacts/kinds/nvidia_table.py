"""The table of plain `nvidia-smi`, of every driver: two lines a device, then the processes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from infradoc.artefacts.kinds.nvidia_state import process_event, reading, state_event
from infradoc.artefacts.model import Segment
from infradoc.artefacts.spans import Span, runs
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Value

_BUS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d"
_DEVICE = lazy(
    rf"^\|\s+(?P<gpu>\d+|N/A)\s+(?P<name>\S.*?)\s+(?:On|Off|N/A|ERR!)?\s*\|\s*(?P<bus>{_BUS})\s+(?:On|Off|N/A)\s*\|\s*(?P<ecc>[\w/!]+)"
)
_READINGS = lazy(
    r"^\|\s*(?P<fan>[\w/%!.]+)\s+(?P<temp>\d+C|N/A|ERR!|Unkno?w?n?\S*)\s+(?P<perf>P\d+|N/A|ERR!|Unkno?w?n?\S*)\s+"
    r"(?P<power>[\d.]+W|N/A|ERR!|Unkno?w?n?\S*)\s*/\s*(?P<cap>[\d.]+W|N/A|ERR!|Unkno?w?n?\S*)\s*\|"
    r"\s*(?P<used>\d+MiB|N/A|ERR!|Unkno\S*)(?:\s*/\s*(?P<total>\d+MiB|N/A|ERR!|Unkno\S*))?\s*\|\s*(?P<util>\d+%|N/A|ERR!|Unkno\S*)"
)
_PROCESS = lazy(
    r"^\|\s+(?P<gpu>\d+)\s+(?:(?:N/A|\d+)\s+(?:N/A|\d+)\s+)?(?P<pid>\d+)\s+(?:C\+G|C|G|M\+C)\s+(?P<name>\S.*?)\s+(?P<size>\d+MiB|N/A)\s*\|"
)
_HEAD = lazy(
    r"^\|\s*(?:NVIDIA-SMI\b|GPU\s+Name\b|Fan\s+Temp\b|Processes:|GPU\s+GI\b|GPU\s+PID\b|ID\s+ID\b|No running processes)"
)
_DATE = lazy(r"^[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d(?: [AP]M)?(?: \w+)? \d{4}$")
_BORDER = lazy(r"^[|+][-=+|\s]{3,}[|+]?\s*$")
_MIG_MODE = lazy(r"^\|\s+(?:\|\s+)?\|?[\s|]*(?:MIG M\.|Disabled\*?|Enabled\*?|N/A|Usage)\s*\|\s*$")


def spans(lines: Sequence[str]) -> list[Span]:
    """Tables with at least one device or the head of the tool."""
    found = runs([line.strip() for line in lines], _mine, gap=2)
    told = [span for span in found if any(_telling(line.strip()) for line in lines[span[0] : span[1]])]
    return [(start - 1 if start and _DATE.match(lines[start - 1].strip()) else start, end) for start, end in told]


def _mine(line: str) -> bool:
    return line[:1] in ("|", "+") and (_telling(line) or bool(_BORDER.match(line) or _MIG_MODE.match(line)))


def _telling(line: str) -> bool:
    return bool(_HEAD.match(line) or _DEVICE.match(line) or _READINGS.match(line) or _PROCESS.match(line))


def events(segment: Segment) -> list[Event]:
    """`gpu_state` for each device, `gpu_process` for each process. A reading of "ERR!" is a device that fails."""
    out: list[Event] = []
    sample, seen = 0, set[int]()
    device: re.Match[str] | None = None
    for index, line in enumerate(segment.lines):
        row = line.strip()
        place = segment.place(index)
        device = _DEVICE.match(row) or device
        found = _READINGS.match(row)
        if found and device is not None:
            gpu = int(device["gpu"]) if device["gpu"].isdigit() else len(seen)
            if gpu in seen:
                sample, seen = sample + 1, set()
            seen.add(gpu)
            out.append(state_event({"gpu": gpu, "sample": sample, **_fields(device, found)}, place, line))
            device = None
        elif process := _PROCESS.match(row):
            size = reading(process["size"])
            out.append(process_event(int(process["gpu"]), process["pid"], process["name"], size, place, line))
    return out


def _fields(device: re.Match[str], row: re.Match[str]) -> dict[str, Value | None]:
    ecc = device["ecc"]
    failed = [name for name in ("fan", "temp", "perf", "power", "util") if row[name].startswith(("ERR", "Unk"))]
    broken = "ERR!" if failed or ecc.startswith("ERR") else None
    return {
        "name": device["name"],
        "ecc_uncorrected": int(ecc) if ecc.isdigit() else None,
        "temperature": reading(row["temp"].removesuffix("C")),
        "pstate": int(row["perf"][1:]) if re.fullmatch(r"P\d+", row["perf"]) else None,
        "power_watts": reading(row["power"]),
        "power_limit_watts": reading(row["cap"]),
        "used_bytes": reading(row["used"]),
        "total_bytes": reading(row["total"] or ""),
        "utilization": reading(row["util"]),
        "failed": broken,
    }
