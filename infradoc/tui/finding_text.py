"""A finding and its plan as styled text. Texts of others are appended as they are: nothing is read as markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any

from rich.text import Text

from infradoc.errors import visible
from infradoc.fleet.chinese import in_language
from infradoc.fleet.model import Mark, Watched
from infradoc.fleet.steps import Move, ShownStep
from infradoc.remediation.guard import Refusal
from infradoc.tui.paint import age, one_line
from infradoc.tui.widgets.plot import LETTERS
from infradoc.tui.words import named

Words = Mapping[str, str]
_SHOWN = 4  # pieces of evidence that stand on the page before somebody asks for all
_SEVERITY = {"info": "cyan", "warning": "yellow", "critical": "bold red"}


def finding_text(
    finding: Mapping[str, Any], others: Sequence[Mapping[str, Any]], say: Words, unfolded: bool = False
) -> Text:
    """Title, cause, impact, evidence with its source, the chain, and what would prove it wrong.

    `unfolded`: all evidence, not the strongest alone.
    """
    text = Text()
    add(text, f"{one_line(finding['title'])}\n", style="bold")
    add(text, named(say, "s", finding["severity"]), style=_SEVERITY[str(finding["severity"])])
    add(text, f"  {say['confidence']} {finding['confidence']:.0%}  [{finding['id']}]\n", style="dim")
    section(text, say["cause"], one_line(finding["cause"]))
    section(text, say["impact"], one_line(finding["impact"]))
    heading(text, say["evidence"])
    found = merged(finding["evidence"])
    shown = found if unfolded else strongest(found)
    for entry in shown:
        against = f"({say['against']}) " if entry["weight"] < 0 else ""
        add(text, f"• {against}{one_line(entry['text'])}")
        where = ", ".join(one_line(part) for part in (entry["signal"], entry["source"]) if part)
        add(text, f"  ({where})\n" if where else "\n", style="dim")
    if len(shown) < len(found):
        add(text, say["more_evidence"].format(n=len(found) - len(shown)) + "\n", style="dim italic")
    elif len(strongest(found)) < len(found):
        add(text, say["less_evidence"] + "\n", style="dim italic")
    if finding["explains"] or any(finding["id"] in one["explains"] for one in others):
        heading(text, say["chain"])
        text.append_text(chain(finding, others, say))
    section(text, say["falsifier"], one_line(finding["falsifier"]))
    return text


def merged(evidence: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Evidence without repeats: what several signals or sources say in the same words is told once, with all."""
    by_text: dict[tuple[str, bool], dict[str, Any]] = {}
    for entry in evidence:
        known = by_text.setdefault((one_line(entry["text"]), entry["weight"] < 0), dict(entry))
        for part in ("signal", "source"):
            told = str(known[part] or "").split(", ")
            if entry[part] and str(entry[part]) not in told:
                known[part] = ", ".join([*filter(None, told), str(entry[part])])
    return list(by_text.values())


def strongest(evidence: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What convinces most, in its order: one piece of each signal first, and whatever speaks against it."""
    if len(evidence) <= _SHOWN + 1:  # folding one line away would gain none
        return list(evidence)
    ranked = sorted(evidence, key=lambda one: -float(one["weight"]))
    kept = [one for one in evidence if one["weight"] < 0]
    seen: set[str] = set()
    for again in (False, True):
        for one in ranked:
            if len(kept) < _SHOWN and one not in kept and (again or str(one["signal"]) not in seen):
                kept.append(one)
                seen.add(str(one["signal"]))
    return [one for one in evidence if one in kept]


def checked_text(state: Watched, say: Words) -> Text:
    """What was checked, and what this server does not show, each with the signals that it lacks."""
    text = Text()
    if state.seen is None:
        add(text, f"{say['never_seen']}\n\n", style="bold")
    add(text, f"{say['checked']} ({len(state.checked)})\n", style="bold underline")
    add(text, "  ".join(sorted(state.checked)) + "\n")
    heading(text, f"{say['not_visible']} ({len(state.blind)})")
    for name, lacks in sorted(state.blind):
        add(text, name, style="bold")
        add(text, f"  {', '.join(lacks)}\n", style="dim")
    return text


def marks_text(marks: Sequence[Mark], now: float, zone: tzinfo | None, say: Words, lang: str) -> Text:
    """What happened, when in `zone` (None: this machine's) and how long ago, the newest first."""
    text = Text()
    add(text, f"{say['happened']}\n", style="bold underline")
    if not marks:
        add(text, f"{say['nothing_happened']}\n", style="dim")
    for mark in reversed(marks):
        clock = datetime.fromtimestamp(mark.time, zone).strftime("%H:%M:%S")
        add(text, f"{clock}  -{age(max(0.0, now - mark.time)):7} ", style="dim")
        add(text, f"{LETTERS[mark.kind]} ", style=_SEVERITY.get(mark.severity, "bold"))
        add(text, f"{say[f'm_{mark.kind}']}  {one_line(in_language(mark.text, lang))}".rstrip() + "\n")
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


def wait_text(refused: Sequence[tuple[str, str]], now: float, say: Words) -> str:
    """Until when the next change has to wait, and how long that still is; empty when nothing waits for time alone."""
    waits = [(reason.until, knob) for knob, reason in refused if isinstance(reason, Refusal) and reason.until > now]
    if not waits:
        return ""
    until, knob = min(waits)
    clock = datetime.fromtimestamp(until).strftime("%H:%M:%S")
    return say["not_now"].format(knob=knob, clock=clock, left=age(until - now))


def plan_text(steps: Sequence[ShownStep], refused: Sequence[tuple[str, str]], say: Words, now: float = 0.0) -> Text:
    """A plan as a diff: what is now, what would be, how it takes effect and who pays; what waits, as of `now`."""
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
        told = reason.told(now) if isinstance(reason, Refusal) else reason
        add(text, f"{say['left_out']}: {one_line(knob)}: {one_line(told)}\n", style="dim")
    return text


def diff(text: Text, move: Move) -> None:
    """One knob, before and after."""
    if move.before is not None:
        add(text, f"   - {move.knob} = {one_line(move.before)}\n", style="red")
    add(text, f"   + {move.knob} = {one_line(move.after)}\n", style="green")


def how(step: ShownStep, say: Words) -> str:
    """How a step takes effect."""
    when = say["live"] if step.live else say["restart"] if step.flag else say["by_hand"]
    return f"{when}, {named(say, 'risk', step.risk)}"


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
