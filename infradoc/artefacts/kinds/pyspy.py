"""Stacks and profiles of Python processes: py-spy dump, top and record (collapsed stacks), and faulthandler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Value

_PROCESS = lazy(r"^Process (?P<pid>\d+): (?P<command>.+)$")
_THREAD = lazy(
    r"^(?:Thread|Current thread) (?:0x)?(?P<id>[\da-fA-F]+)"
    r"(?: \((?P<state>idle|active|active\+gil|most recent call first)\))?"
    r'(?:: "?(?P<name>[^"]*)"?)?:?$'
)
_FRAME = lazy(r"^ {2,}(?P<function>[^\s(]+|<\w+>) \((?P<file>[^()]*?)(?::(?P<line>\d+))?\)$")
_FAULT = lazy(r'^ {2}File "(?P<file>[^"]+)", line \d+,? in (?P<function>\S+)')
_SUMMARY = lazy(r"^(?:Total Samples|Collecting samples from|Sampling process)\b|^GIL: +[\d.]+%, Active:")
_HEAD = lazy(r"^\s*%Own\s+%Total\b")
_ROW = lazy(
    r"^\s*(?P<own>[\d.]+)%\s+(?P<total>[\d.]+)%\s+(?:[\d.]+s\s+[\d.]+s\s+)?(?P<function>\S+)"
    r"(?: \((?P<file>[^()]*)\))?\s*$"
)
_COLLAPSED = lazy(r"^(?P<stack>\S[^;]*(?:;[^;]+){2,}) (?P<count>\d+)$")
_LOCALS = lazy(r"^ {4,}(?:Arguments:|Locals:|\w+: )")
_MOST = 200


class PySpyKind:
    """Where a process spends its time or stands."""

    name = "pyspy"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """From the first line of a dump or a profile to its last frame or row."""
        found: list[Span] = []
        start = last = -1
        for index, line in enumerate(lines):
            if _opens(line):
                start = index if start < 0 else start
                last = index
            elif start >= 0 and _goes_on(line):
                last = index
            elif start >= 0 and (line.strip() or index - last > 2):
                found += _kept(lines, start, last + 1)
                start = -1
        return found + (_kept(lines, start, last + 1) if start >= 0 else [])

    def read(self, segment: Segment) -> Artefact:
        """`stack_sample` for each thread, or for each function of a profile with its share."""
        out = Artefact()
        out.events += _dumped(segment)
        out.events += _profiled(segment)
        out.events += _collapsed(segment)
        out.events.sort(key=lambda event: int((event.source or ":0").rpartition(":")[2]))
        return out


def _opens(line: str) -> bool:
    thread = _THREAD.match(line)
    if thread is not None:
        return thread["state"] is not None
    return bool(_SUMMARY.match(line) or _HEAD.match(line) or _PROCESS.match(line) or _COLLAPSED.match(line))


def _goes_on(line: str) -> bool:
    return bool(_FRAME.match(line) or _FAULT.match(line) or _ROW.match(line) or _LOCALS.match(line)) or line.startswith(
        "Python v"
    )


def _kept(lines: Sequence[str], start: int, end: int) -> list[Span]:
    """The range when it holds frames or rows; a lone "Process 12: ..." is a line like any other."""
    body = lines[start:end]
    collapsed = sum(1 for line in body if _COLLAPSED.match(line))
    telling = any(_FRAME.match(line) or _FAULT.match(line) or _ROW.match(line) for line in body)
    return [(start, end)] if telling or collapsed >= 3 else []


def _dumped(segment: Segment) -> list[Event]:
    found: list[Event] = []
    process = ""
    index = 0
    while index < len(segment.lines):
        line = segment.lines[index]
        if head := _PROCESS.match(line):
            process = head["command"][:200]
        thread = _THREAD.match(line)
        index += 1
        if thread is None or thread["state"] is None:
            continue
        first, frames = index, []
        while index < len(segment.lines):
            frame = _FRAME.match(segment.lines[index]) or _FAULT.match(segment.lines[index])
            if frame is None and not _LOCALS.match(segment.lines[index]):
                break
            frames += [frame] if frame is not None else []
            index += 1
        if frames:
            state = thread["state"] if thread["state"] != "most recent call first" else "stopped"
            fields: dict[str, Value] = {
                "thread": thread["name"] or thread["id"],
                "top": frames[0]["function"],
                "functions": " ".join(frame["function"] for frame in frames[:60]),
                "state": "active" if state == "active+gil" else state,
                "holds_gil": state == "active+gil",
            }
            if process:
                fields["process"] = process
            text = f"{line.strip()} {segment.lines[first].strip()}"[:400]
            found.append(Event("stack_sample", 0, fields, source=segment.place(first), text=text))
    return found[:_MOST]


def _profiled(segment: Segment) -> list[Event]:
    found: list[Event] = []
    process = ""
    for index, line in enumerate(segment.lines):
        if "process:" in line:
            process = line.partition("process:")[2].strip()[:200]
        row = _ROW.match(line)
        if row is None:
            continue
        fields: dict[str, Value] = {
            "top": row["function"],
            "share": float(row["own"]) / 100,
            "total_share": float(row["total"]) / 100,
            "functions": f"{row['function']} {row['file'] or ''}".strip(),
        }
        if process:
            fields["process"] = process
        found.append(Event("stack_sample", 0, fields, source=segment.place(index), text=line.strip()[:400]))
    return found[:_MOST]


def _collapsed(segment: Segment) -> list[Event]:
    """Shares of each function over all stacks; a function counts once a stack."""
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    first: dict[str, int] = {}
    samples = 0
    for index, line in enumerate(segment.lines):
        match = _COLLAPSED.match(line)
        if match is None:
            continue
        frames = [frame.partition(" (")[0].strip() for frame in match["stack"].split(";")]
        count = int(match["count"])
        samples += count
        own[frames[-1]] += count
        for frame in set(frames):
            total[frame] += count
            first.setdefault(frame, index)
    return [
        Event(
            "stack_sample",
            0,
            {"top": name, "share": own[name] / samples, "total_share": count / samples, "functions": name},
            source=segment.place(first[name]),
            text=f"{count / samples:.0%} {name}"[:400],
        )
        for name, count in total.most_common(_MOST)
        if samples
    ]
