"""Readings over time: `nvidia-smi --query-gpu=... --format=csv`, `--query-compute-apps`, dmon and pmon."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from infradoc.artefacts.kinds.nvidia_plain import asked_columns, sure_cells
from infradoc.artefacts.kinds.nvidia_state import (
    process_event,
    reading,
    reason_event,
    reason_of,
    reasons_in,
    state_event,
)
from infradoc.artefacts.model import Segment
from infradoc.artefacts.spans import Span
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Value

MOST_ROWS = 4_000  # of a longer series every n-th row is kept
_COLUMN = lazy(
    r"^(?:timestamp|index|name|gpu_name|uuid|gpu_uuid|pci\.bus_id|pstate|pid|process_name|(?:utilization|memory|power|"
    r"temperature|clocks|ecc|fan|retired_pages|pcie|clocks_(?:throttle|event)_reasons|remapped_rows|enforced|used_gpu_memory"
    r"|driver_version|count|compute_cap|mig|display_\w+|persistence_mode)[\w.]*)(?: \[[\w%]+\])?$"
)
# A query for one reading: a header with its unit, and rows of nothing else.
_ONE_COLUMN = lazy(
    r"^(?:utilization\.gpu|memory\.(?:used|free)|power\.draw|temperature\.gpu|clocks\.(?:sm|gr)) ?(?:\[[\w%]+\])$"
)
_ONE_CELL = lazy(r"^ *\d+(?:\.\d+)? ?(?:MiB|%|W|MHz)?$")
_UNIT = lazy(r" \[([\w%]+)\]$")
_CSV_FIELDS = {
    "utilization.gpu": ("utilization", "%"),
    "memory.used": ("used_bytes", "MiB"),
    "memory.total": ("total_bytes", "MiB"),
    "power.draw": ("power_watts", "W"),
    "power.draw.average": ("power_watts", "W"),
    "power.draw.instant": ("power_watts", "W"),
    "power.limit": ("power_limit_watts", "W"),
    "enforced.power.limit": ("power_limit_watts", "W"),
    "power.default_limit": ("power_default_watts", "W"),
    "temperature.gpu": ("temperature", ""),
    "clocks.sm": ("clock_hertz", "MHz"),
    "clocks.current.sm": ("clock_hertz", "MHz"),
    "clocks.gr": ("clock_hertz", "MHz"),
    "clocks.current.graphics": ("clock_hertz", "MHz"),
    "clocks.max.sm": ("clock_max_hertz", "MHz"),
    "clocks.max.gr": ("clock_max_hertz", "MHz"),
    "clocks.max.graphics": ("clock_max_hertz", "MHz"),
    "pcie.link.width.current": ("pcie_width", ""),
    "pcie.link.width.max": ("pcie_width_max", ""),
    "pcie.link.gen.current": ("pcie_generation", ""),
    "pcie.link.gen.gpucurrent": ("pcie_generation", ""),
    "pcie.link.gen.max": ("pcie_generation_max", ""),
    "pcie.link.gen.gpumax": ("pcie_generation_max", ""),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrected", ""),
    "ecc.errors.uncorrected.volatile.device_memory": ("ecc_uncorrected", ""),
}
_WHOLE = frozenset({"ecc_uncorrected", "pcie_width", "pcie_width_max", "pcie_generation", "pcie_generation_max"})
_FLAGS = {"remapped_rows.pending": "remap_pending", "remapped_rows.failure": "remap_failed"}
_FLAGS["retired_pages.pending"] = "remap_pending"
_DMON = {
    "pwr": ("power_watts", "W"),
    "gtemp": ("temperature", ""),
    "temp": ("temperature", ""),
    "sm": ("utilization", "%"),
    "pclk": ("clock_hertz", "MHz"),
    "fb": ("used_bytes", "MiB"),
}
_DMON_HEAD = lazy(r"^#\s*(?:Date\s+Time\s+)?gpu\s+(?:pwr|pid|sm|fb|gtemp|temp|mclk|pviol)\b", re.IGNORECASE)
_DMON_ROW = lazy(r"^\s*(?:\d{8}\s+\d\d:\d\d:\d\d\s+)?\d+\s+(?:[-\w.]+\s*){2,}$")


def spans(lines: Sequence[str]) -> list[Span]:
    """Each header with its rows."""
    found: list[Span] = []
    index = 0
    while index < len(lines):
        end = _end(lines, index)
        if end > index:
            found.append((index, end))
        index = max(end, index + 1)
    return found


def _end(lines: Sequence[str], start: int) -> int:
    names = _columns(lines[start])
    end = start + 1
    if names:
        while end < len(lines) and (_columns(lines[end]) or _cells(lines[end], names)):
            end += 1
        return end if end > start + 1 else start
    if sure_cells(lines[start]):
        while end < len(lines) and sure_cells(lines[end]):
            end += 1
        return end
    if not _DMON_HEAD.match(lines[start]):
        return start
    while end < len(lines) and (lines[end].startswith("#") or _DMON_ROW.match(lines[end])):
        end += 1
    return end


def _columns(line: str) -> list[str]:
    """Column names with their units; empty when the line is no header of a query."""
    if len(line) > 2_000:
        return []
    if _ONE_COLUMN.match(line):
        return [line.strip()]
    if "," not in line:
        return []
    asked = asked_columns(line)
    if asked:
        return asked
    names = [name.strip() for name in line.split(",")]
    known = [name for name in names if _COLUMN.match(name)]
    return names if len(known) == len(names) and any("." in name or "_" in name for name in names) else []


def events(segment: Segment) -> list[Event]:
    """`gpu_state` for each row kept, `gpu_clocks_reason` for the reasons in it, `gpu_process` for processes."""
    rows = list(_rows(segment.lines))
    step = max(1, len(rows) // MOST_ROWS)
    out: list[Event] = []
    seen: dict[int, int] = {}
    for index, cells in rows[::step]:
        place, text = segment.place(index), segment.lines[index]
        if "pid" in cells:
            size = reading(cells.get("used_gpu_memory", cells.get("used_memory", "")), "MiB")
            name = cells.get("process_name", cells.get("name", cells.get("command", "")))
            out.append(process_event(_gpu(cells), cells["pid"], name, size, place, text, _time(cells)))
            continue
        gpu = _gpu(cells)
        seen[gpu] = seen.get(gpu, -1) + 1
        time = _time(cells)
        out.append(state_event({"gpu": gpu, "sample": seen[gpu], **_fields(cells)}, place, text, time))
        out += [reason_event(gpu, reason, place, text, time) for reason in _reasons(cells)]
    return out


def _rows(lines: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    names: list[str] = []
    units: dict[str, str] = {}
    dmon = False
    for index, line in enumerate(lines):
        header = _columns(line)
        if header:
            dmon, units = False, {_UNIT.sub("", name): _unit(name) for name in header}
            names = list(units)
        elif _DMON_HEAD.match(line):
            dmon, names = True, line.lstrip("# ").lower().split()
        elif not names and (guessed := sure_cells(line)):
            yield index, guessed
        elif names and not line.startswith("#"):
            cells = line.split(None, len(names) - 1) if dmon else _cells(line, names)
            if len(cells) == len(names):
                yield (
                    index,
                    {name: _with_unit(cell, units.get(name, "")) for name, cell in zip(names, cells, strict=True)},
                )


def _cells(line: str, names: Sequence[str]) -> list[str]:
    """The cells of a row; empty when it is none. Log collectors take the time stamp off the front of a row."""
    if len(names) == 1:
        return [line.strip()] if _ONE_CELL.match(line) else []
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) == len(names) - 1 and names[0] == "timestamp" and len(names) > 2:
        cells = ["", *cells]
    return cells if len(cells) == len(names) else []


def _unit(name: str) -> str:
    found = _UNIT.search(name)
    return found[1] if found else ""


def _with_unit(cell: str, unit: str) -> str:
    """A bare number under "memory.used [MiB]" (nounits) with its unit."""
    return f"{cell} {unit}" if unit and re.fullmatch(r"-?\d+(?:\.\d+)?", cell) else cell


def _gpu(cells: Mapping[str, str]) -> int:
    text = cells.get("index", cells.get("gpu", "0"))
    return int(text) if text.isdigit() else 0


def _fields(cells: Mapping[str, str]) -> dict[str, Value | None]:
    out: dict[str, Value | None] = {"name": cells.get("name", cells.get("gpu_name"))}
    for column, (name, unit) in (*_CSV_FIELDS.items(), *_DMON.items()):
        if column in cells:
            value = reading(cells[column], unit)
            out[name] = int(value) if value is not None and name in _WHOLE else value
    for column, name in _FLAGS.items():
        if column in cells:
            out[name] = cells[column] in ("Yes", "1")
    pstate = cells.get("pstate", "")
    out["pstate"] = int(pstate[1:]) if re.fullmatch(r"P\d+", pstate) else None
    if any(
        cell.strip("[]").startswith(("Unknown Error", "GPU is lost", "GPU requires reset")) for cell in cells.values()
    ):
        out["failed"] = "Unknown Error"
    return out


def _reasons(cells: Mapping[str, str]) -> Iterator[str]:
    for column, value in cells.items():
        if column.startswith(("clocks_throttle_reasons.", "clocks_event_reasons.")):
            if column.endswith(".active"):
                yield from reasons_in(value)
            elif value == "Active" and (reason := reason_of(column.partition(".")[2])):
                yield reason
    if (reading(cells.get("tviol", "")) or 0) > 0:
        yield "hw_thermal"
    if (reading(cells.get("pviol", "")) or 0) >= 50:  # per cent of the second
        yield "power_cap"


def _time(cells: Mapping[str, str]) -> float | None:
    text = cells.get("timestamp", "").split(".")[0]
    try:
        return datetime.strptime(text, "%Y/%m/%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
