"""Tables and lines that the tools of a host print: where they begin, which columns they have, where they end."""

from __future__ import annotations

import re
from collections.abc import Sequence

from infradoc.artefacts.kinds.tables import Row, percent_of, rows_of, size_of
from infradoc_rules.lazy_pattern import lazy

TOP = lazy(r"^top - (\d\d:\d\d:\d\d) up .*load average: ([\d.]+)")
CPU = lazy(r"^%?Cpu(?:\(s\)|\d+) *:.*?([\d.]+)[ %]*id")
_TOP_REST = lazy(r"^(?:Tasks|Threads):|^(?:[KMG]i?B )?(?:Mem|Swap) ?:.*(?:total|free|used)")
TOP_MEMORY = lazy(
    r"^(?P<unit>[KMG])i?B (?P<what>Mem|Swap) ?: *(?P<total>[\d.]+)\+?[ ,]*total,? +(?P<free>[\d.]+)\+?[ ,]*free,? +"
    r"(?P<used>[\d.]+)\+?[ ,]*used(?:[.,] +(?P<left>[\d.]+)\+?[ ,]*avail)?"
)
# sysstat: its banner, and what mpstat prints of all CPUs together
SYSSTAT = lazy(r"^Linux \S+ \(.{1,80}\)\s+\S+\s+_\w+_\s+\((\d+) CPU\)\s*$")
MPSTAT = lazy(r"^(?:\d\d:\d\d:\d\d|Average:)(?: [AP]M)?\s+all(?:\s+[\d.]+){8,10}\s+([\d.]+)\s*$")
_UPTIME = lazy(r"^\s*\d\d:\d\d(?::\d\d)?(?: [ap]m)?\s+up .{1,80}load averages?: [\d.]+")
_MPSTAT_REST = lazy(r"^(?:\d\d:\d\d:\d\d|Average:)(?: [AP]M)?\s+(?:CPU\s+%usr|\d{1,3}(?:\s+[\d.]+){9,11}\s*$)")
_VMSTAT = ("R", "B", "SWPD", "FREE", "BUFF", "CACHE", "SI", "SO")
CPUS = lazy(r"^CPU\(s\): +(\d+)$")
_LSCPU = lazy(
    r"^(?:Architecture|CPU op-mode|Byte Order|On-line CPU|Thread\(s\) per core|Core\(s\) per|Socket\(s\)|NUMA node"
    r"|Model name|Vendor ID|CPU max MHz|CPU min MHz)[^:]*:"
)
NPROC = lazy(r"^(?:[$#] *)?nproc(?: --all)?(?:[:=] *|: )?(\d+)?$")
SERIES = lazy(r"(?i)^(?:rss|mem(?:ory)?|res|used)(?:_used|_rss|_usage)?[_ (]*(k|m|g)?i?b?(?:ytes)?\)?$")
_WHEN = lazy(
    r"(?i)^(?:t|ts|time|timestamp|date|elapsed|hour|hours|h|minute|min|t_s|t_min|uptime|day)(?:_?\(?[a-z]+\)?)?$"
)


def end_of(lines: Sequence[str], start: int) -> int:
    """The line after what begins on line `start`; `start` itself where nothing does."""
    line = lines[start]
    table = header_of(line)
    if table is not None:
        rows = rows_below(lines, start, *table)
        return rows[-1].index + 1 if rows else start
    if TOP.match(line) or CPU.match(line) or _TOP_REST.match(line) or CPUS.match(line) or _LSCPU.match(line):
        return start + 1
    if SYSSTAT.match(line) or MPSTAT.match(line) or _MPSTAT_REST.match(line) or _UPTIME.match(line):
        return start + 1
    found = NPROC.match(line.strip())
    if found:
        below = lines[start + 1].strip() if start + 1 < len(lines) else ""
        return start + 1 if found[1] else start + 2 if below.isdigit() else start
    return start


def header_of(line: str) -> tuple[str, list[str]] | None:
    """(tool, column names) when the line is the header of a table that we know."""
    words = line.upper().split()
    if len(words) < 2:
        return None
    if "%CPU" in words and words[-1] in ("COMMAND", "CMD") and ("RES" in words or "RSS" in words or "PID" in words):
        return "ps", words
    if "RSS" in words and words[-1] in ("COMMAND", "CMD", "COMM", "ARGS", "NAME"):
        return "ps", words
    if line.startswith(("CONTAINER", "NAME")) and "MEM USAGE / LIMIT" in line:
        return "docker", _docker_names(line)
    if "MEMORY(BYTES)" in words and words[0] in ("NAME", "POD", "NAMESPACE"):
        return "kubectl", words
    if tuple(words[:8]) == _VMSTAT:
        return "vmstat", words
    if words[:4] == ["TOTAL", "USED", "FREE", "SHARED"]:
        return "free", words
    if words[0] == "FILESYSTEM" and "MOUNTED" in words:
        return "df", [*words[:-2], "MOUNTED"] if words[-1] == "ON" else words
    return ("series", words) if _is_series(words) else None


def _docker_names(line: str) -> list[str]:
    """Columns of docker stats as its rows split into words: usage and limit have a slash between them."""
    names = [word.strip().upper() for word in re.split(r" {2,}|\t", line.strip())]
    parts = {
        "MEM USAGE / LIMIT": ["MEM", "/", "LIMIT"],
        "NET I/O": ["NETIN", "/", "NETOUT"],
        "BLOCK I/O": ["IN", "/", "OUT"],
    }
    return [part for name in names for part in parts.get(name, [name])]


def _is_series(words: Sequence[str]) -> bool:
    """A hand-made table: a time, then a memory size."""
    return len(words) <= 8 and bool(_WHEN.match(words[0])) and any(SERIES.match(word) for word in words[1:])


def rows_below(lines: Sequence[str], start: int, tool: str, names: Sequence[str]) -> list[Row]:
    """The rows below the header on line `start`: what no longer has numbers where the tool prints them ends them."""
    if tool == "free":
        return _free_rows(lines, start)
    found: list[Row] = []
    for row in rows_of(lines, start, names):
        if not _fits(tool, row):
            break
        found.append(row)
    return found


def _fits(tool: str, row: Row) -> bool:
    cells = row.cells
    if tool == "ps":
        sizes = [size_of(cells[name]) for name in ("RES", "RSS") if name in cells]
        shares = [percent_of(cells[name]) for name in ("%CPU", "%MEM") if name in cells]
        return all(value is not None for value in (*sizes, *shares))
    if tool == "docker":
        return cells.get("/") == "/" and size_of(cells.get("MEM", "")) is not None
    if tool == "kubectl":
        return size_of(cells["MEMORY(BYTES)"]) is not None
    if tool == "series":
        unit = next(name for name in list(cells)[1:] if SERIES.match(name))
        return size_of(cells[unit]) is not None
    if tool == "vmstat":
        return all(cells[name].isdigit() for name in _VMSTAT)
    return cells["MOUNTED"].startswith("/") or cells["MOUNTED"][:1].isalnum()


def _free_rows(lines: Sequence[str], start: int) -> list[Row]:
    """The rows of `free`: "Mem:" has a number for each column, "Swap:" for the first three."""
    names = lines[start].upper().split()
    found: list[Row] = []
    for index in range(start + 1, min(start + 4, len(lines))):
        words = lines[index].split()
        if len(words) < 4 or words[0] not in ("Mem:", "Swap:", "-/+"):
            break
        if words[0] != "-/+":
            mark = {"SWAP": ""} if words[0] == "Swap:" else {}
            found.append(Row(index, {**dict(zip(names, words[1:], strict=False)), **mark}))
    return found


def free_unit(rows: Sequence[Row]) -> int:
    """Of bare numbers: KiB by default; `free -m` and `free -g` show in the size of the host."""
    total = next((row.cells["TOTAL"] for row in rows if "SWAP" not in row.cells), "0")
    size = int(total) if total.isdigit() else 0
    return 1 << 10 if size >= 2_000_000 else 1 << 20 if size >= 2_000 else 1 << 30
