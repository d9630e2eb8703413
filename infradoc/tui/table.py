"""The fleet as rows and columns: which columns fit, what each cell says, which target comes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from infradoc.fleet.model import Watched
from infradoc.tui import paint

# (column, cells, rank of importance): on a narrow terminal the last ranks are left out first.
COLUMNS: tuple[tuple[str, int, int], ...] = (
    ("target", 14, 0),
    ("status", 13, 1),
    ("running", 4, 5),
    ("waiting", 4, 3),
    ("wait", 8, 6),
    ("kv", 4, 4),
    ("ttft", 8, 7),
    ("itl", 8, 8),
    ("finding", 15, 2),
    ("age", 7, 9),
)
_PADDING = 1
_FINDING_FIRST = 20  # cells more for the finding are worth more than the age of the page, which the status tells if old
_NUMBERS = ("running", "waiting", "wait", "ttft", "itl", "age")
_STYLES = {"ok": "green", "degraded": "yellow", "unhealthy": "bold red", "unknown": "magenta"}
_BAR = 6


@dataclass(frozen=True, slots=True)
class Row:
    """One target as of a moment."""

    spec: str
    state: Watched
    now: float


def columns_for(width: int) -> list[tuple[str, int]]:
    """(column, cells) that fit into `width`; what is left over goes to the bar of KV use, the name and the finding."""
    chosen: list[tuple[str, int, int]] = []
    room = width - 1
    for column in sorted(COLUMNS, key=lambda one: one[2]):
        spare = _FINDING_FIRST if column[0] == "age" else 0
        if room >= column[1] + _PADDING + spare or column[2] < 3:
            chosen.append(column)
            room -= column[1] + _PADDING
    room = max(0, room)
    bar = _BAR + 1 if room >= 2 * (_BAR + 1) and any(column[0] == "kv" for column in chosen) else 0
    name = min((room - bar) // 3, 24)
    more = {"finding": room - bar - name, "target": name, "kv": bar}
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
        right = name in _NUMBERS or (name == "kv" and width <= _BAR)
        style = "dim" if stale else _STYLES[row.state.status] if name == "status" else ""
        text = cell(row, name, say, bar=name == "kv" and width > _BAR)
        found.append(Text(paint.fitted(text, width, right), style=style, no_wrap=True))
    return found


def head(column: str, width: int, say: Mapping[str, str]) -> Text:
    """The head of a column, above its figures."""
    word = say["kv_short" if column == "kv" and width <= _BAR else column]
    return Text(paint.fitted(word, width, column in _NUMBERS or (column == "kv" and width <= _BAR)))


def short_name(name: str) -> str:
    """A target's name without what all URLs share: two servers of one host differ by their port alone."""
    return paint.one_line(name).removeprefix("http://").removeprefix("https://").rstrip("/")


def cell(row: Row, column: str, say: Mapping[str, str], bar: bool = True) -> str:
    """One cell in words; `bar`: KV use as a bar, too."""
    state, vitals = row.state, row.state.vitals
    if column == "kv":
        share = vitals.get("kv_usage_ratio")
        figure = paint.percent(share)
        return f"{paint.bar(share, _BAR)} {figure:>4}" if bar and share is not None else figure
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
