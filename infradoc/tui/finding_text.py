"""A finding and its plan as styled text. Texts of others are appended as they are: nothing is read as markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from infradoc.errors import visible
from infradoc.fleet.steps import Move, ShownStep
from infradoc.tui.paint import one_line

Words = Mapping[str, str]
_SEVERITY = {"info": "cyan", "warning": "yellow", "critical": "bold red"}


def finding_text(finding: Mapping[str, Any], others: Sequence[Mapping[str, Any]], say: Words) -> Text:
    """Title, cause, impact, evidence with its source, the chain, and what would prove it wrong."""
    text = Text()
    add(text, f"{one_line(finding['title'])}\n", style="bold")
    add(text, str(finding["severity"]), style=_SEVERITY[str(finding["severity"])])
    add(text, f"  {say['confidence']} {finding['confidence']:.0%}  [{finding['id']}]\n", style="dim")
    section(text, say["cause"], one_line(finding["cause"]))
    section(text, say["impact"], one_line(finding["impact"]))
    heading(text, say["evidence"])
    for entry in finding["evidence"]:
        against = f"({say['against']}) " if entry["weight"] < 0 else ""
        add(text, f"• {against}{one_line(entry['text'])}")
        where = ", ".join(one_line(part) for part in (entry["signal"], entry["source"]) if part)
        add(text, f"  ({where})\n" if where else "\n", style="dim")
    if finding["explains"] or any(finding["id"] in one["explains"] for one in others):
        heading(text, say["chain"])
        text.append_text(chain(finding, others, say))
    section(text, say["falsifier"], one_line(finding["falsifier"]))
    return text


def chain(finding: Mapping[str, Any], others: Sequence[Mapping[str, Any]], say: Words) -> Text:
    """The root and what it explains, as far as it is there now; of a symptom its root."""
    text = Text()
    by_id = {str(one["id"]): one for one in others}
    root = next((one for one in others if finding["id"] in one["explains"]), None)
    if root is not None:
        add(text, f"{one_line(root['title'])}  [{root['id']}]\n", style="bold")
        add(text, f"└─ {one_line(finding['title'])}\n")
        return text
    add(text, f"{one_line(finding['title'])}\n", style="bold")
    explained = [str(name) for name in finding["explains"]]
    for place, name in enumerate(explained):
        branch = "└─" if place == len(explained) - 1 else "├─"
        title = one_line(by_id[name]["title"]) + "  " if name in by_id else ""
        add(text, f"{branch} {say['explains']} {title}[{name}]\n", style="" if name in by_id else "dim")
    return text


def plan_text(steps: Sequence[ShownStep], refused: Sequence[tuple[str, str]], say: Words) -> Text:
    """A plan as a diff: what is now, what would be, how it takes effect and who pays."""
    text = Text()
    if not steps and not refused:
        add(text, say["no_plan"] + "\n")
    for place, step in enumerate(steps, 1):
        add(text, f"{place}. {one_line(step.what)}", style="bold")
        add(text, f"  [{how(step, say)}]\n", style="dim")
        for move in step.moves:
            diff(text, move)
        if step.flag:
            add(text, f"   {one_line(step.flag)}\n", style="cyan")
        for name, value in ((say["why"], step.why), (say["cost"], step.cost), (say["loser"], step.loser)):
            if value:
                add(text, f"   {name}: ", style="dim")
                add(text, f"{one_line(value)}\n")
    for knob, reason in refused:
        add(text, f"{say['left_out']}: {one_line(knob)}: {one_line(reason)}\n", style="dim")
    return text


def diff(text: Text, move: Move) -> None:
    """One knob, before and after."""
    if move.before is not None:
        add(text, f"   - {move.knob} = {one_line(move.before)}\n", style="red")
    add(text, f"   + {move.knob} = {one_line(move.after)}\n", style="green")


def how(step: ShownStep, say: Words) -> str:
    """How a step takes effect."""
    when = say["live"] if step.live else say["restart"] if step.flag else say["by_hand"]
    return f"{when}, {step.risk}"


def add(text: Text, piece: str, style: str = "") -> None:
    """Append a piece; the one door through which words of others come in, so no control character passes."""
    text.append(visible(piece), style)


def section(text: Text, title: str, body: str) -> None:
    """A heading and a paragraph."""
    heading(text, title)
    add(text, f"{body}\n")


def heading(text: Text, title: str) -> None:
    """A heading."""
    add(text, f"\n{title}\n", style="bold underline")
