"""The fleet as rows and columns: which columns fit, what each cell says, which target comes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from infradoc.fleet.model import Watched
from infradoc.tui import paint

# (column, cells, rank of importance): on a narrow terminal the last ranks are left out first.
COLUMNS: tuple[tuple[str, int, int], ...] = (
    ("target", 16, 0),
    ("status", 13, 1),
    ("running", 5, 5),
    ("waiting", 5, 3),
    ("wait", 8, 7),
    ("kv", 11, 4),
    ("ttft", 8, 6),
    ("itl", 8, 8),
    ("finding", 20, 2),
    ("age", 7, 9),
)
_PADDING = 2
_STYLES = {"ok": "green", "degraded": "yellow", "unhealthy": "bold red", "unknown": "magenta"}
_BAR = 6


@dataclass(frozen=True, slots=True)
class Row:
    """One target as of a moment."""

    spec: str
    state: Watched
    now: float


def columns_for(width: int) -> list[tuple[str, int]]:
    """(column, cells) that fit into `width`; what is left over goes to the target's name and the finding."""
    chosen: list[tuple[str, int, int]] = []
    room = width - 1
    for column in sorted(COLUMNS, key=lambda one: one[2]):
        if room >= column[1] + _PADDING or column[2] < 3:
            chosen.append(column)
            room -= column[1] + _PADDING
    room = max(0, room)
    more = {"finding": room - min(room // 3, 24), "target": min(room // 3, 24)}
    return [(name, cells + more.get(name, 0)) for name, cells, _ in COLUMNS if any(name == one[0] for one in chosen)]


def ordered(rows: Sequence[Row]) -> list[Row]:
    """Worst first; equals by name."""
    return sorted(rows, key=lambda row: (row.state.worst, row.state.name))


def matches(row: Row, text: str, say: Mapping[str, str]) -> bool:
    """Whether a filter keeps the row: every word is in its name, status, system or findings."""
    ids = [str(one["id"]) + " " + str(one["title"]) for one in row.state.findings]
    hay = " ".join([row.state.name, say[row.state.status], row.state.system or "", *ids]).lower()
    return all(word in hay for word in text.lower().split())


def status_text(row: Row, say: Mapping[str, str]) -> str:
    """The status, or how long the last page is ago."""
    stale = row.state.stale_seconds(row.now)
    return say["stale"].format(age=paint.age(stale)) if stale is not None else say[row.state.status]


def cells(row: Row, columns: Sequence[tuple[str, int]], say: Mapping[str, str]) -> list[Text]:
    """One cell for each column, cut to its width: names of others are plain text."""
    stale = row.state.stale_seconds(row.now) is not None
    found = []
    for name, width in columns:
        right = name in ("running", "waiting", "wait", "ttft", "itl", "age")
        style = "dim" if stale else _STYLES[row.state.status] if name == "status" else ""
        found.append(Text(paint.fitted(cell(row, name, say), width, right), style=style, no_wrap=True))
    return found


def short_name(name: str) -> str:
    """A target's name without what all URLs share: two servers of one host differ by their port alone."""
    return paint.one_line(name).removeprefix("http://").removeprefix("https://").rstrip("/")


def cell(row: Row, column: str, say: Mapping[str, str]) -> str:
    """One cell in words."""
    state, vitals = row.state, row.state.vitals
    if column == "kv":
        share = vitals.get("kv_usage_ratio")
        return "-" if share is None else f"{paint.bar(share, _BAR)} {paint.percent(share)}"
    if column == "finding":
        if state.findings:
            return paint.one_line(state.findings[0]["title"])
        return paint.one_line(state.error) if state.error else say["no_finding" if state.looks else "not_yet"]
    plain = {
        "target": lambda: short_name(state.name),
        "status": lambda: status_text(row, say),
        "running": lambda: paint.number(vitals.get("running")),
        "waiting": lambda: paint.number(vitals.get("waiting")),
        "wait": lambda: paint.seconds(vitals.get("estimated_wait_seconds")),
        "ttft": lambda: paint.seconds(vitals.get("ttft_p99_seconds")),
        "itl": lambda: paint.seconds(vitals.get("itl_p99_seconds")),
        "age": lambda: paint.age(None if state.seen is None else max(0.0, row.now - state.seen)),
    }
    return plain[column]()
