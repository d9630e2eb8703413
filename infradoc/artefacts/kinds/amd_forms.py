"""The forms in which AMD's tools print devices, as (line, readings under the names of `gpu_state`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Value

Fields = dict[str, Value | None]
_NUMBER = lazy(r"(-?\d+(?:\.\d+)?) ?(%|W|°?C|[Mm][Hh]z|GB|MB|MiB|GiB|B)?")
# AMD's MB and GB count in powers of two.
_SCALE = {"%": 0.01, "MHZ": 1e6, "MB": 1 << 20, "MIB": 1 << 20, "GB": 1 << 30, "GIB": 1 << 30}
# rocm-smi's table: what stands between the readings differs by version, their order does not.
_ROW = lazy(
    r"^(?P<gpu>\d+) .*?(?P<temperature>\d+\.\d)°?[cC] +(?P<power_watts>[\d.]+)W .*?(?P<clock_hertz>\d+)M[hH]z +"
    r"\d+M[hH]z +[\d.]+% +\S+ +(?P<power_limit_watts>[\d.]+)W +(?P<memory>\d+)% +(?P<utilization>\d+)% *$"
)
_HEAD = lazy(r"^(?:Device|GPU) +.*\bSCLK\b.*\bVRAM%")
_BAR = lazy(r"^=+(?: .* )?=*$|^\+-+|^\|=|^\| +(?:AMD-SMI|BDF|GPU +HIP)|^ +\(DID, +GUID\)")
_READING = lazy(r"^GPU\[(?P<gpu>\d+)\]\s*: (?P<key>[^:]{3,80}): (?P<value>.*)$")
# amd-smi's table has two lines a device.
_BOARD = lazy(
    r"^\| *[0-9a-f]{4}:[0-9a-f:.]+ +(?P<name>\S.*?) *\| *\S+ ?%? +(?P<temperature>\d+) °C +(?P<errors>\S+) +"
    r"(?P<power_watts>[\d.]+)/(?P<power_limit_watts>[\d.]+) W *\|$"
)
_USE = lazy(r"^\| *(?P<gpu>\d+) .*\| *(?P<utilization>\d+) % .*?(?P<used>\d+)/(?P<total>\d+) MB *\|$")
_MONITOR = lazy(r"^ *GPU +(?:XCP +)?POWER\b")
_MONITOR_COLUMNS: Mapping[str, str] = {
    "POWER": "power_watts", "PWR_CAP": "power_limit_watts", "GPU_T": "temperature", "GPU_TEMP": "temperature",
    "GFX_CLK": "clock_hertz", "GFX_CLOCK": "clock_hertz", "GFX%": "utilization", "GFX_UTIL": "utilization",
    "VRAM_USED": "used_bytes", "VRAM_TOTAL": "total_bytes", "VRAM_USAGE": "usage",
}  # fmt: skip
_MONITOR_ROW = lazy(r"^ *\d+ .*\d ?(?:W|°C|MHz|GB)\b")
_METRIC = lazy(
    r"^ {0,4}(?:GPU: \d+|(?!INFO|WARN|ERROR|DEBUG|CRITICAL|FATAL)[A-Z][A-Z0-9_]+:(?: .*)?)$|^ {5,}[A-Z][A-Z0-9_]+:"
)
_KEY = lazy(r"^(?P<indent> *)(?P<key>[A-Za-z][A-Za-z0-9_]+): *(?P<value>.*)$")
# Readings by the end of their path, whatever the form: "mem_usage.used_vram", "VRAM Total Used Memory (B)".
_NAMES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), name)
    for pattern, name in (
        (r"^VRAM Total Used Memory|(?:^|\.)used_vram$|^vram\.used$", "used_bytes"),
        (r"^VRAM Total Memory|(?:^|\.)total_vram$|^vram\.total$", "total_bytes"),
        (r"^GPU use|(?:^|\.)gfx_activity$", "utilization"),
        (r"^(?:Average|Current Socket|Current) Graphics Package Power|(?:^|\.)(?:socket_power|current_socket_power)$",
         "power_watts"),
        (r"^Max Graphics Package Power|(?:^|\.)(?:power_cap|socket_power_limit)$", "power_limit_watts"),
        (r"^Temperature \(Sensor junction\)|^temperature\.hotspot$", "temperature"),
        (r"^clock\.gfx(?:_0)?\.clk$", "clock_hertz"),
        (r"^clock\.gfx(?:_0)?\.max_clk$", "clock_max_hertz"),
        (r"^Card (?:series|model)$|(?:^|\.)market_name$", "name"),
        (r"(?:^|\.)ecc\.total_uncorrectable_count$", "ecc_uncorrected"),
    )
)  # fmt: skip


def mine(line: str) -> bool:
    return telling(line) or any(form.match(line) for form in (_BAR, _HEAD, _MONITOR_ROW, _METRIC))


def telling(line: str) -> bool:
    if _ROW.match(line) or _BOARD.match(line) or _USE.match(line) or _MONITOR.match(line):
        return True
    reading = _READING.match(line)
    known = _name_of(reading["key"]) if reading else None
    return known is not None or re.match(r"^ +(?:GFX_ACTIVITY|USED_VRAM|SOCKET_POWER|HOTSPOT): \d", line) is not None


def numbered(devices: Sequence[tuple[int, Fields]]) -> Iterator[tuple[int, tuple[int, Fields]]]:
    """Each device with the number of its snapshot."""
    seen: dict[Value | None, int] = {}
    for index, fields in devices:
        gpu = fields.get("gpu")
        seen[gpu] = seen.get(gpu, -1) + 1
        yield seen[gpu], (index, fields)


def devices(lines: Sequence[str]) -> list[tuple[int, Fields]]:
    """(line, readings) of each device in the order of the text."""
    text = "\n".join(lines).strip()
    if text[:1] in ("{", "["):
        try:
            return [(0, fields) for fields in json_devices(json.loads(text))]
        except (ValueError, RecursionError):
            return []
    rows = [(index, fields) for index, line in enumerate(lines) if (fields := _row(line))]
    return [*rows, *_boards(lines), *_readings(lines), *_monitor(lines), *_metrics(lines)]


def _row(line: str) -> Fields:
    found = _ROW.match(line)
    if found is None:
        return {}
    known = {name: float(found[name]) for name in ("temperature", "power_watts", "power_limit_watts")}
    out: Fields = {"gpu": int(found["gpu"]), **known}
    return out | {"clock_hertz": float(found["clock_hertz"]) * 1e6, "utilization": int(found["utilization"]) / 100}


def _boards(lines: Sequence[str]) -> Iterator[tuple[int, Fields]]:
    for index, line in enumerate(lines[:-1]):
        board = _BOARD.match(line)
        use = _USE.match(lines[index + 1]) if board else None
        if board and use:
            known = {name: float(board[name]) for name in ("temperature", "power_watts", "power_limit_watts")}
            errors = int(board["errors"]) if board["errors"].isdigit() else None
            yield index, {
                "gpu": int(use["gpu"]), "name": board["name"], **known, "ecc_uncorrected": errors,
                "utilization": int(use["utilization"]) / 100, "used_bytes": float(int(use["used"]) << 20),
                "total_bytes": float(int(use["total"]) << 20),
            }  # fmt: skip


def _readings(lines: Sequence[str]) -> Iterator[tuple[int, Fields]]:
    """`GPU[0] : key: value` rows, put together by device."""
    found: dict[int, tuple[int, Fields]] = {}
    for index, line in enumerate(lines):
        row = _READING.match(line)
        name = _name_of(row["key"]) if row else None
        if row and name:
            _, fields = found.setdefault(int(row["gpu"]), (index, {"gpu": int(row["gpu"])}))
            fields[name] = _value(name, row["value"], "%" if "(%)" in row["key"] else "")
    yield from found.values()


def _monitor(lines: Sequence[str]) -> Iterator[tuple[int, Fields]]:
    """`amd-smi monitor`: readings with their units under the names of a header."""
    names: list[str] = []
    for index, line in enumerate(lines):
        if _MONITOR.match(line):
            names = line.split()
        elif names and re.match(r"^ *\d+ ", line):
            cells = re.findall(r"(?:N/A|[\d.]+(?:/ ?[\d.]+)?)(?: ?(?:W|°C|MHz|%|MB/s|MB|GB))?", line)
            fields: Fields = {}
            for name, cell in zip(names, cells, strict=False):
                known = _MONITOR_COLUMNS.get(name)
                if name == "GPU":
                    fields["gpu"] = int(cell) if cell.isdigit() else 0
                elif known == "usage" and "/" in cell:
                    used, _, total = cell.partition("/")
                    unit = re.sub(r"[^A-Z]", "", total)
                    fields["used_bytes"], fields["total_bytes"] = _value("", used, unit), _value("", total, unit)
                elif known:
                    fields[known] = _value(known, cell)
            yield index, fields


def _metrics(lines: Sequence[str]) -> Iterator[tuple[int, Fields]]:
    """`amd-smi metric`: sections by indent under `GPU: 0`."""
    fields: Fields = {}
    begun, path = 0, [(0, "")]
    for index, line in enumerate(lines):
        found = _KEY.match(line)
        if found is None:
            continue
        indent = len(found["indent"])
        if found["key"] == "GPU" and not indent and found["value"].isdigit():
            if len(fields) > 1:
                yield begun, fields
            fields, begun, path = {"gpu": int(found["value"])}, index, [(0, "")]
        elif fields:
            path = [*(part for part in path if part[0] < indent), (indent, found["key"].lower())]
            name = _name_of(".".join(part for _, part in path if part))
            if name and found["value"]:
                fields[name] = _value(name, found["value"])
    if len(fields) > 1:
        yield begun, fields


def json_devices(value: Any) -> Iterator[Fields]:
    """Devices of `rocm-smi --json` ({"card0": {...}}) and `amd-smi ... --json` ([{"gpu": 0, ...}])."""
    if isinstance(value, dict) and isinstance(value.get("gpu_data"), list):
        value = value["gpu_data"]
    rows = (
        [(key.removeprefix("card"), row) for key, row in value.items() if re.fullmatch(r"card\d+", str(key))]
        if isinstance(value, dict)
        else [(str(row.get("gpu")), row) for row in value if isinstance(row, dict) and "gpu" in row]
        if isinstance(value, list)
        else []
    )
    for number, row in rows:
        fields: Fields = {}
        for key, given in _flat(row, ""):
            name = _name_of(key)
            if name and name not in fields:
                fields[name] = _value(name, given, "%" if "(%)" in key else "")
        if number.isdigit() and any(known is not None for known in fields.values()):
            yield {"gpu": int(number), **fields}


def _flat(node: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """(dotted path, text) of every value; {"value": 98, "unit": "%"} is one."""
    for key, value in node.items() if isinstance(node, dict) else ():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and "value" in value:
            yield path, f"{value['value']} {value.get('unit', '')}"
        elif isinstance(value, dict):
            yield from _flat(value, f"{path}.")
        else:
            yield path, str(value)


def _name_of(key: str) -> str | None:
    return next((name for pattern, name in _NAMES if pattern.search(key)), None)


def _value(name: str, text: str, unit: str = "") -> Value | None:
    """A reading in our unit; None for "N/A"."""
    if name == "name":
        return text.strip() or None
    found = _NUMBER.match(text.strip())
    if found is None:
        return None
    number = float(found[1]) * _SCALE.get((found[2] or unit).upper().removeprefix("°"), 1)
    return int(number) if name == "ecc_uncorrected" else number
