"""The KV pool block by block: by state, by owner or by age, as letter and colour; leaked blocks in each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from textual.strip import Strip

from infradoc.tui import paint
from infradoc.tui.panels.block_holders import clean_runs, seconds_of
from infradoc.tui.panels.block_views import Cell, Shown, age_view, owner_view
from infradoc.tui.panels.context import Context
from infradoc.tui.panels.requests import received
from infradoc.tui.panels.series import paint_usage
from infradoc.tui.words import named

LETTERS = {"free": "·", "live": "L", "cached": "c", "shared": "S", "reserved": "r", "leaked": "!"}
_ROLES = {
    "free": "dim",
    "live": "first",
    "cached": "third",
    "shared": "second",
    "reserved": "warning",
    "leaked": "critical",
}
# Where several blocks share a cell, the rarest fault among them shows, not the most common state.
_FIRST = ("leaked", "reserved", "shared", "live", "cached", "free")
_OWNERS = 4
_LEAKS = 3


def paint_blocks(context: Context) -> list[Strip]:
    """The map where the engine gives it; else how full the pool was, and why there is no map."""
    told = context.engine.blocks
    runs = clean_runs(told.get("runs"))
    if not runs:
        dim = context.palette.get("dim")
        why = context.say["no_blocks"].format(why=context.engine.why or context.say["asking"])
        notes = [paint.strip([(row, dim)]) for row in paint.wrapped(why, context.width)][:2]
        return notes + paint_usage(context.sized(context.width, context.height - len(notes)))
    shown = chosen_view(told, context)
    foot = [*shown.foot, *leaks(told, context)]
    rows = max(1, context.height - len(foot) - 1)
    states, each = reduced(runs, context.width * rows)
    cells = shown.cells(states, each)
    body = [map_row(cells[at : at + context.width], context) for at in range(0, len(cells), context.width)]
    if each > 1:
        said = context.say["each_cell"].format(n=each) + shown.of_several
        body.append(paint.strip([(said, context.palette.get("dim"))]))
    return body + foot


def chosen_view(told: Mapping[str, Any], context: Context) -> Shown:
    """The view that was asked for; by state, with a sentence, where the engine tells no owners and ages."""
    pieces = context.engine.pieces if context.block_view != "state" else []
    if pieces and context.block_view == "owner":
        return owner_view(pieces, told, context)
    if pieces:
        return age_view(pieces, context)
    foot = [ledger_row(told, context), *owners(context)]
    if context.block_view != "state":
        dim = context.palette.get("dim")
        foot[:0] = [paint.strip([(row, dim)]) for row in paint.wrapped(context.say["no_owners"], context.width)]
    return Shown(lambda states, each: [state_cell(state) for state in states], foot)


def state_cell(state: str) -> Cell:
    """Letter and role of a state."""
    return LETTERS.get(state, "?"), _ROLES.get(state, "strong")


def reduced(runs: Sequence[tuple[str, int]], cells: int) -> tuple[list[str], int]:
    """States for at most `cells` cells, and how many blocks each stands for. Work is runs + cells, not blocks."""
    total = sum(length for _, length in runs)
    each = max(1, -(-total // max(1, cells)))
    states: list[str] = [""] * -(-total // each)
    start = 0
    for state, length in runs:
        for cell in range(start // each, -(-(start + length) // each)):
            if not states[cell] or rank(state) < rank(states[cell]):
                states[cell] = state
        start += length
    return states, each


def rank(state: str) -> int:
    """Which state shows where several share a cell."""
    return _FIRST.index(state) if state in _FIRST else 0


def map_row(cells: Sequence[Cell], context: Context) -> Strip:
    """One row of the map, neighbours of one role as one piece."""
    parts: list[tuple[str, str]] = []
    for letter, role in cells:
        if parts and parts[-1][1] == role:
            parts[-1] = (parts[-1][0] + letter, role)
        else:
            parts.append((letter, role))
    return paint.strip([(text, context.palette.get(role)) for text, role in parts])


def ledger_row(told: Mapping[str, Any], context: Context) -> Strip:
    """How many blocks are in each state; it is the legend, too."""
    ledger = told.get("ledger")
    counts = ledger if isinstance(ledger, Mapping) else {}
    parts = []
    for state, letter in LETTERS.items():
        if not counts.get(state) and state != "free":
            continue
        style = context.palette.get(_ROLES[state])
        text = f"{named(context.say, 'bl', state)} {counts.get(state, 0)}  "
        parts += [(f"{letter} ", style), (text, context.palette.get("text"))]
    return paint.strip(parts, context.width)


def owners(context: Context) -> list[Strip]:
    """The requests that hold most blocks, with their age."""
    held = [row for row in context.engine.requests or () if int(row.get("blocks") or 0) > 0]
    held.sort(key=lambda row: -int(row["blocks"]))
    texts = []
    for row in held[:_OWNERS]:
        age = paint.age(context.engine.now - received(row))
        texts.append(f"{paint.one_line(row.get('id', ''))[-8:]} {row['blocks']} ({age})")
    if not texts:
        return []
    rows = paint.wrapped(f"{context.say['owners']}: " + "  ".join(texts), context.width)
    return [paint.strip([(row, context.palette.get("text"))]) for row in rows]


def leaks(told: Mapping[str, Any], context: Context) -> list[Strip]:
    """Leaked blocks: the oldest first, with the request that had them last."""
    rows = told.get("leaked")
    known = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    known.sort(key=lambda row: -(seconds_of(row.get("age_seconds")) or 0.0))
    texts = []
    for row in known[:_LEAKS]:
        age = paint.age(seconds_of(row.get("age_seconds")))
        texts.append(f"{row.get('block')} {paint.one_line(row.get('owner', '?'))[-12:]} ({age})")
    if not texts:
        return []
    style = context.palette.get("critical")
    rows = paint.wrapped(f"{context.say['leaked']}: " + "  ".join(texts), context.width)
    return [paint.strip([(row, style)]) for row in rows]
