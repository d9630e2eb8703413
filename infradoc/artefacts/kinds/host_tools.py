"""What people paste of a host: top, ps, docker stats, kubectl top, pidstat, free, df, uptime, nproc, lscpu.

Several snapshots after one another are a series: `sample` numbers them, `seconds` is the time since the first where
the snapshots say when they were taken.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from infradoc.artefacts.kinds.host_captions import ASKED, CAPTION, is_stamp, says_when, seconds_of
from infradoc.artefacts.kinds.host_tables import (
    CPU,
    CPUS,
    MPSTAT,
    NPROC,
    SERIES,
    SYSSTAT,
    TOP,
    TOP_MEMORY,
    end_of,
    free_unit,
    header_of,
    rows_below,
)
from infradoc.artefacts.kinds.tables import Row, percent_of, size_of
from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span
from infradoc.sources.launch import launch_facts, system_of
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact, Value

_STAMP = lazy(r"(?:(\d{4}-\d\d-\d\d)[T ])?(?<![\d:])(\d\d:\d\d(?::\d\d)?)(?![\d:])")
_LOAD = lazy(r"load averages?: ([\d.]+)")
_SPANS = {"h": 3600.0, "min": 60.0, "m": 60.0, "day": 86400.0, "d": 86400.0}
_MOST = 40  # processes of one snapshot; a table by CPU or memory has the telling ones first


class HostToolsKind:
    """Snapshots of a host's processes, memory and disks."""

    name = "host_tools"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """Each table with the lines that belong to its tool, and a line above it that says when it was taken."""
        found: list[Span] = []
        index = 0
        while index < len(lines):
            end = end_of(lines, index)
            if end == index:
                index += 1
                continue
            start = index - 1 if index and says_when(lines[index - 1]) else index
            # Snapshots after one another are one series.
            if found and not any(line.strip() for line in lines[found[-1][1] : start]):
                start = found.pop()[0]
            found.append((start, end))
            index = end
        return found

    def read(self, segment: Segment) -> Artefact:
        """process_usage and host_usage events; facts on cores, memory and /dev/shm."""
        reader = _Reader(segment)
        reader.run()
        return reader.out


class _Reader:
    """Reads one segment; counts snapshots."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.lines = segment.lines
        self.out = Artefact()
        self.sample = 0
        self.now: float | None = None
        self.first: float | None = None
        self.relative = False  # to a beginning that is not told

    def run(self) -> None:
        index = 0
        while index < len(self.lines):
            index = self._take(index)
        if self.relative:  # "two hours later": what came before it was the beginning
            events = self.out.events
            self.out.events = [
                event
                if "seconds" in event.fields
                else replace(event, fields={**event.fields, "seconds": 0.0})
                if event.name == "process_usage"
                else event
                for event in events
            ]

    def _take(self, index: int) -> int:
        line = self.lines[index]
        table = header_of(line)
        if table is not None:
            readers: Mapping[str, Callable[[Sequence[Row]], None]] = {
                "ps": self._ps, "docker": self._docker, "kubectl": self._kubectl,
                "free": self._free, "df": self._df, "series": self._series, "vmstat": self._vmstat,
            }  # fmt: skip
            rows = rows_below(self.lines, index, *table)
            self.sample += table[0] in ("ps", "docker", "kubectl", "free")
            readers[table[0]](rows)
            return rows[-1].index + 1 if rows else index + 1
        self._line(line, index)
        return index + 1

    def _line(self, line: str, index: int) -> None:
        text = line.strip()
        if is_stamp(text):
            self._at(line)
        elif found := ASKED.match(text):
            self._at(found["time"])
        elif found := CAPTION.match(text):
            self._later(found)
        elif found := TOP.match(line):
            self._at(found[1])
            self._event("host_usage", index, {"load": float(found[2])})
        elif found := MPSTAT.match(text):
            self._event("host_usage", index, {"idle": float(found[1]) / 100})
        elif found := SYSSTAT.match(text):
            self._fact("host.cpus", int(found[1]), index)
        elif found := TOP_MEMORY.match(line):
            self._memory(found, index)
        elif found := CPU.match(line):
            self._event("host_usage", index, {"idle": float(found[1]) / 100})
        elif found := CPUS.match(line) or NPROC.match(line.strip()):
            below = self.lines[index + 1].strip() if index + 1 < len(self.lines) else ""
            count = found[1] or (below if below.isdigit() else None)
            if count:
                self._fact("host.cpus", int(count), index)
        elif found := _LOAD.search(line):
            self._event("host_usage", index, {"load": float(found[1])})

    def _at(self, text: str) -> None:
        found = _STAMP.search(text)
        if found is None:
            return
        when = datetime.fromisoformat(f"{found[1] or '2000-01-01'} {found[2]}").replace(tzinfo=UTC).timestamp()
        day = 86_400.0 if found[1] is None and self.now is not None and when < self.now - 43_200 else 0.0
        self.now = when + day
        self.first = self.now if self.first is None else self.first

    def _later(self, found: re.Match[str]) -> None:
        """A caption such as "two hours later": counted from the first snapshot, or from the last where time went on."""
        seconds = seconds_of(found)
        self.relative = self.relative or self.first is None
        self.first = self.first if self.first is not None else (self.now or 0.0)
        whole = self.first + seconds
        self.now = whole if self.now is None or whole > self.now else self.now + seconds

    def _event(self, name: str, index: int, fields: Mapping[str, Value | None]) -> None:
        known = {key: value for key, value in fields.items() if value is not None}
        if "sample" not in known and name != "host_usage":
            known["sample"] = self.sample
        if self.now is not None:
            known["seconds"] = known.get("seconds", self.now)
        if name == "host_usage":
            known.pop("seconds", None)
        self.out.events.append(Event(name, 0, known, source=self.segment.place(index), text=self.lines[index][:400]))

    def _fact(self, name: str, value: Value, index: int) -> None:
        self.out.facts.append(Fact(name, value, "config", self.segment.place(index)))

    def _ps(self, rows: Sequence[Row]) -> None:
        for row in rows[:_MOST]:
            cells = row.cells
            name = cells.get("COMMAND") or cells.get("CMD") or cells.get("COMM") or cells.get("ARGS") or cells["NAME"]
            size = cells.get("RES") or cells.get("RSS")
            self._launched(name, row.index)
            pid = cells.get("PID", "")
            self._event("process_usage", row.index, {
                "name": name[:200], "pid": int(pid) if pid.isdigit() else None,
                "cores": percent_of(cells["%CPU"]) if "%CPU" in cells else None,
                "bytes": _whole(size_of(size, 1024)) if size else None,
            })  # fmt: skip

    def _launched(self, command: str, index: int) -> None:
        """The flags of a server in a row with its whole command; the first such process stands for its workers."""
        if " -" in command and self.out.system is None and (system := system_of(command)) is not None:
            self.out.system = system
            self.out.facts += launch_facts(command, self.segment.place(index))

    def _docker(self, rows: Sequence[Row]) -> None:
        for row in rows:
            cells = row.cells
            self._event("process_usage", row.index, {
                "name": cells.get("NAME") or cells.get("CONTAINER ID") or cells.get("CONTAINER", "container"),
                "cores": percent_of(cells["CPU %"]) if "CPU %" in cells else None,
                "bytes": _whole(size_of(cells["MEM"])), "limit_bytes": _whole(size_of(cells["LIMIT"])),
            })  # fmt: skip

    def _kubectl(self, rows: Sequence[Row]) -> None:
        for row in rows:
            cpu = row.cells.get("CPU(CORES)", "")
            cores = float(cpu[:-1]) / 1000 if cpu.endswith("m") and cpu[:-1].isdigit() else None
            size = _whole(size_of(row.cells["MEMORY(BYTES)"]))
            self._event("process_usage", row.index, {"name": row.cells["NAME"], "cores": cores, "bytes": size})

    def _series(self, rows: Sequence[Row]) -> None:
        for row in rows:
            names = list(row.cells)
            unit = next(found for name in names[1:] if (found := SERIES.match(name)))
            size = size_of(row.cells[unit.string], {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(unit[1] or "", 1))
            self.sample += 1
            self._at(row.cells[names[0]])
            seconds = None
            if (count := percent_of(row.cells[names[0]])) is not None:
                word = names[0].lower().rpartition("_")[2].strip("()")
                seconds = 100 * count * next((f for key, f in _SPANS.items() if word.startswith(key)), 1.0)
            self._event(
                "process_usage", row.index, {"name": unit.string.lower(), "bytes": _whole(size), "seconds": seconds}
            )

    def _free(self, rows: Sequence[Row]) -> None:
        unit = free_unit(rows)
        for row in rows:
            total, used = (_whole(size_of(row.cells[name], unit)) for name in ("TOTAL", "USED"))
            if total is None or used is None:
                continue
            if "SWAP" in row.cells:
                self._fact("host.swap_bytes", total, row.index)
                self._fact("host.swap_used_bytes", used, row.index)
            else:
                left = _whole(size_of(row.cells.get("AVAILABLE", ""), unit))
                self._fact("host.memory_bytes", total, row.index)
                self._fact("host.available_bytes", total - used if left is None else left, row.index)
                taken = used if left is None else total - left
                self._event("process_usage", row.index, {"name": "host", "bytes": taken, "limit_bytes": total})
            # The stamp of the next snapshot stands here where a terminal's wrapped lines were joined again.
            rest = self.lines[row.index].split(None, 4 if "SWAP" in row.cells else 7)
            if is_stamp(rest[-1].strip()):
                self._at(rest[-1])

    def _memory(self, found: re.Match[str], index: int) -> None:
        """The two lines on memory in the head of top."""
        unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[found["unit"]]
        total, used = (round(float(found[name]) * unit) for name in ("total", "used"))
        if found["what"] == "Mem":
            self._fact("host.memory_bytes", total, index)
            self._fact("host.available_bytes", total - used, index)
            return
        self._fact("host.swap_bytes", total, index)
        self._fact("host.swap_used_bytes", used, index)
        if found["left"]:
            self._fact("host.available_bytes", round(float(found["left"]) * unit), index)

    def _vmstat(self, rows: Sequence[Row]) -> None:
        """Kilobytes a second from and to swap; the first row is a mean since the start of the host."""
        later = rows[1:] or rows
        if later:
            moved = [int(row.cells["SI"]) + int(row.cells["SO"]) for row in later]
            self._fact("host.swap_rate", round(1024 * statistics.median(moved)), later[-1].index)
            self._fact("host.swap_used_bytes", int(later[-1].cells["SWPD"]) << 10, later[-1].index)
            known: dict[str, Value] = {"runnable": statistics.median(int(row.cells["R"]) for row in later)}
            idle = [int(row.cells["ID"]) for row in later if row.cells.get("ID", "").isdigit()]
            if idle:
                known["idle"] = statistics.median(idle) / 100
            self._event("host_usage", later[-1].index, known)

    def _df(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if row.cells.get("MOUNTED", "").strip().startswith("/dev/shm"):
                sizes = [cell for name, cell in row.cells.items() if name not in ("FILESYSTEM", "TYPE", "MOUNTED")]
                unit = 1024 if any("BLOCKS" in name for name in row.cells) else 1
                self._fact("shm.size_bytes", _whole(size_of(sizes[0], unit)) or 0, row.index)
                self._fact("shm.used_bytes", _whole(size_of(sizes[1], unit)) or 0, row.index)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
