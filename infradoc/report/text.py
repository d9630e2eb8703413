"""A report for people at a terminal, in English or Chinese. Plain text when stdout is no terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from infradoc.report.asides import changed_line, considered_line
from infradoc.report.model import Report
from infradoc.report.words import words
from infradoc_rules.actions import means
from infradoc_rules.knobs import knob_table
from infradoc_rules.units import size_text

_STATUS_STYLE = {"ok": "bold green", "degraded": "bold yellow", "unhealthy": "bold red", "unknown": "bold magenta"}
_SEVERITY_STYLE = {"info": "cyan", "warning": "yellow", "critical": "red"}
_PLAIN_WIDTH = 120


def make_console(stream: TextIO | None = None) -> Console:
    """A console on stdout: styled on a terminal, 120 columns of plain text elsewhere (COLUMNS overrides)."""
    out = stream or sys.stdout
    width = None if out.isatty() or "COLUMNS" in os.environ else _PLAIN_WIDTH
    return Console(file=out, width=width, highlight=False, markup=False, emoji=False)


def print_report(report: Report, lang: str = "en", console: Console | None = None) -> None:
    """Print one report."""
    out = console or make_console()
    if out.is_terminal:
        _print(report, words(lang), out)
        return
    with out.capture() as captured:
        _print(report, words(lang), out)
    # Tables are padded to the full width: of no use in a file.
    out.file.write("\n".join(line.rstrip() for line in captured.get().split("\n")))


def _print(report: Report, say: Mapping[str, str], out: Console) -> None:
    out.print(_headline(report, say))
    for place, finding in enumerate(report["findings"], 1):
        out.print()
        out.print(_title(place, finding, say))
        changed = report.get("changed", []) if place == 1 else []
        out.print(Padding(_body(finding, say, changed), (0, 0, 0, 3)))
    out.print()
    out.print(_footer(report, say))


def _headline(report: Report, say: Mapping[str, str]) -> Text:
    status, target = report["status"], report["target"]
    line = Text("● ", style=_STATUS_STYLE[status])
    line.append(status_text(report, say), style=_STATUS_STYLE[status])
    what = " ".join(str(part) for part in (target["system"], target["version"]) if part)
    line.append(f"  {target['name']}")
    if what:
        line.append(f"  ({what})")
    observed = report.get("observed")
    if observed and observed["looks"]:
        line.append("  " + say["watched"].format(seconds=observed["seconds"], ticks=observed["looks"]), style="dim")
    return line


def status_text(report: Report, say: Mapping[str, str]) -> str:
    """The status in words; "healthy" of an idle server is said with its limits."""
    idle = report["status"] == "ok" and report.get("observed", {}).get("idle")
    return say["ok_idle" if idle else report["status"]]


def _title(place: int, finding: Mapping[str, Any], say: Mapping[str, str]) -> Text:
    line = Text(f"{place}. ", style="bold")
    line.append(str(finding["title"]), style="bold")
    severity = str(finding["severity"])
    line.append(f"  {say[severity]}", style=_SEVERITY_STYLE[severity])
    line.append(f", {say['confidence']} {finding['confidence']:.0%}  [{finding['id']}]", style="dim")
    return line


def _grid() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    return table


def _body(finding: Mapping[str, Any], say: Mapping[str, str], changed: Sequence[Mapping[str, Any]] = ()) -> Table:
    table = _grid()
    table.add_row(say["cause"], str(finding["cause"]))
    if changed:
        table.add_row(say["changed"], "\n".join(changed_line(one, say["lang"]) for one in changed))
    table.add_row(say["impact"], str(finding["impact"]))
    for entry in finding["evidence"]:
        table.add_row(say["evidence"] if entry["weight"] >= 0 else say["against"], _evidence(entry))
    for place, action in enumerate(finding["actions"]):
        table.add_row(say["action"] if place == 0 else say["or"], _action(action, say))
    if finding["explains"]:
        table.add_row(say["explains"], ", ".join(finding["explains"]))
    table.add_row(say["falsifier"], str(finding["falsifier"]))
    language = "" if say["lang"] == "en" else f" --lang {say['lang']}"
    table.add_row(say["playbook"], f"infradoc playbook {finding['playbook']}{language}")
    return table


def _evidence(entry: Mapping[str, Any]) -> Text:
    line = Text(str(entry["text"]))
    where = ", ".join(str(part) for part in (entry["signal"], entry["source"]) if part)
    if where:
        line.append(f"  ({where})", style="dim")
    return line


def action_line(action: Mapping[str, Any], say: Mapping[str, str]) -> str:
    """What to type, or to do where there is nothing to type; from what, and how it takes effect."""
    head = str(action["flag"] or in_words(action, say["lang"]))
    if say["lang"] == "zh" and head.startswith("drop -"):
        head = f"去掉 {head.removeprefix('drop ')}"
    also: list[Mapping[str, Any]] = action.get("also", [])
    more = [str(one["flag"]) for one in also if one["flag"] and f" {one['flag']} " not in f" {head} "]
    head = " ".join([head, *more])
    # Under their own names, because a flag may count in another unit (blocks for tokens).
    moves = (move for one in (action, *also) if (move := move_text(one)))
    notes = [f" {say['and']} ".join(moves)]
    if action["live"]:
        notes.append(say["live"])
    elif action["flag"] and (action["risk"] == "disruptive" or _launch_flag(str(action["flag"]))):
        notes.append(say["restart"])  # what is not the server's own takes no restart of it
    told = "; ".join(note for note in notes if note)
    return head + (f"  ({told})" if told else "")


def _launch_flag(flag: str) -> bool:
    """Whether it is a flag of a start command, which no engine but the bundled one takes while it runs."""
    return flag.startswith(("-", "drop -"))


def in_words(action: Mapping[str, Any], lang: str) -> str:
    """What an action does, where the engine has no flag for it: its knob's name is one of ours, not of the user's."""
    name = str(action["knob"]).replace("_", " ")
    return means(str(action.get("name", "")), lang) or f"{action['change']} {name}"


def move_text(one: Mapping[str, Any]) -> str:
    """`max_num_seqs 16 -> 8`; empty where neither value is known."""
    if one["from"] is None and one["to"] is None:
        return ""
    before, after = (_in_units(str(one["knob"]), one[end]) for end in ("from", "to"))
    ends = [value_text(before), *(["->", value_text(after)] if after is not None else [])]
    return " ".join([str(one["knob"]), *(end for end in ends if end)])


def _in_units(knob: str, value: object) -> object:
    """Bytes as a size that can be read; any other value as it is."""
    counted = isinstance(value, int | float) and not isinstance(value, bool)
    if counted and knob in knob_table() and knob_table()[knob].unit == "bytes":
        return size_text(float(value))  # type: ignore[arg-type]  # a number, as was asked
    return value


def value_text(value: object) -> str:
    """A knob's value for people; nothing when it is not known."""
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)


def _action(action: Mapping[str, Any], say: Mapping[str, str]) -> Text:
    line = Text(action_line(action, say), style="bold")
    if action["why"]:
        line.append(f"\n{action['why']}", style="not bold")
    if action["cost"]:
        line.append(f"\n{say['cost']}{action['cost']}", style="not bold")
    return line


def _footer(report: Report, say: Mapping[str, str]) -> Table:
    table = _grid()
    changed = report.get("changed", [])
    if changed and not report["findings"] and report["status"] != "ok":
        table.add_row(say["changed"], "\n".join(changed_line(one, say["lang"]) for one in changed))
    if considered := report.get("considered"):
        table.add_row(say["considered"], "\n".join(considered_line(one) for one in considered))
    table.add_row(say["vitals"], vitals_line(report, say))
    table.add_row(say["checked"], ", ".join(report["checked"]) or say["nothing"])
    if report["not_visible"]:
        table.add_row(say["not_visible"], "\n".join(report["not_visible"]))
    if report["unparsed_lines"]:
        table.add_row("", say["unparsed"].format(n=report["unparsed_lines"]))
    return table


def vitals_line(report: Report, say: Mapping[str, str]) -> str:
    """The vitals that are known, in one line."""
    return " · ".join(f"{name} {value}" for name, value in vitals_pairs(report, say)) or say["nothing"]


def vitals_pairs(report: Report, say: Mapping[str, str]) -> list[tuple[str, str]]:
    """Name and value of each vital that is known, as people read them."""
    known = ((name, value) for name, value in report["vitals"].items() if value is not None)
    return [(say.get(name, name), _vital(name, value)) for name, value in known]


def _vital(name: str, value: float) -> str:
    if name.endswith("_ratio"):
        return f"{value:.0%}"
    if name.endswith("_bytes"):
        return f"{value / 2**30:.1f} GiB"
    if name.endswith("_seconds"):
        return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"
    return f"{value:g}"
