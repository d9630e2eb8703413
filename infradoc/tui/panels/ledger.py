"""Where the time of requests goes: the stages as one stacked bar, and each with its mean; letters beside colours."""

from __future__ import annotations

from rich.style import Style
from textual.strip import Strip

from infradoc.fleet.shares import Ledger, StageShare, ledger
from infradoc.tui import paint
from infradoc.tui.panels.context import Context
from infradoc.tui.words import named

LETTERS = {
    "receive": "R",
    "template": "M",
    "tokenize": "T",
    "queue": "Q",
    "prefill": "P",
    "preempted": "X",
    "decode": "D",
    "detokenize": "U",
    "send": "S",
}
_ROLES = {"queue": "warning", "preempted": "critical", "prefill": "second", "decode": "first", "tokenize": "third"}


def paint_ledger(context: Context) -> list[Strip]:
    """The stacked bar and the table below it."""
    found = ledger(context.frame)
    if not found.stages:
        dim = context.palette.get("dim")
        return [paint.strip([(row, dim)]) for row in paint.wrapped(context.say["no_ledger"], context.width)]
    head = context.say["ledger_head"].format(n=found.requests, mean=paint.seconds(found.end_to_end))
    rows = [paint.strip([(paint.fitted(head, context.width), context.palette.get("dim"))])]
    rows += [stacked(found, context)] * (2 if context.height > 9 else 1)
    return rows + [row(stage, context) for stage in sorted(found.stages, key=lambda one: -one.share)]


def stacked(found: Ledger, context: Context) -> Strip:
    """Each stage as wide as its share; what is above nothing has a cell."""
    widths = cells([stage.share for stage in found.stages], context.width)
    parts = [
        (letter(stage.stage) * width, role(stage.stage, context) + REVERSED)
        for stage, width in zip(found.stages, widths, strict=True)
    ]
    return paint.strip(parts)


def cells(shares: list[float], width: int) -> list[int]:
    """Whole cells for shares that add up to 1: `width` in all, by largest remainder."""
    exact = [share * width for share in shares]
    given = [int(value) for value in exact]
    by_rest = sorted(range(len(shares)), key=lambda place: given[place] - exact[place])
    for place in by_rest[: width - sum(given)]:
        given[place] += 1
    return given


def row(stage: StageShare, context: Context) -> Strip:
    """One stage in words."""
    room = max(4, context.width - 2 - 11 - 10 - 6)
    style = role(stage.stage, context)
    parts = [
        (f"{letter(stage.stage)} ", style),
        (paint.fitted(named(context.say, "st", stage.stage), 11), context.palette.get("text")),
        (paint.fitted(paint.seconds(stage.mean), 9, right=True) + " ", context.palette.get("strong")),
        (paint.fitted(paint.percent(stage.share), 5, right=True) + " ", context.palette.get("text")),
        (paint.bar(stage.share, room), style),
    ]
    return paint.strip(parts, context.width)


def letter(stage: str) -> str:
    """The letter of a stage; its first one where it is no stage of ours."""
    return LETTERS.get(stage, paint.one_line(stage)[:1].lower() or "?")


REVERSED = Style(reverse=True)


def role(stage: str, context: Context) -> Style:
    """The style of a stage."""
    return context.palette.get(_ROLES.get(stage, "text"))
