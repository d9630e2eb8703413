"""The map of blocks by owner and by age: letters and digits first, so that it reads without colour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.style import Style
from textual.strip import Strip

from infradoc.tui import paint
from infradoc.tui.panels.block_holders import AGES, ALPHABET, Piece, age_digit, cells_of, holders, is_shared, letters
from infradoc.tui.panels.context import Context
from infradoc.tui.words import named

Cell = tuple[str, str]  # letter, role of the palette
# Nobody holds them, or the map by state says more: signs, for letters are requests and digits are ages.
_IDLE: Mapping[str, Cell] = {"free": ("·", "dim"), "cached": (":", "dim"), "reserved": ("-", "dim")}
_LEAKED: Cell = ("!", "critical")
_SHARED: Cell = ("#", "strong")
_OTHERS: Cell = ("+", "dim")
_UNTOLD: Cell = ("?", "strong")
_OWNER_ROLES = ("first", "second", "good", "warning")
_AGE_ROLES = ("dim", "dim", "text", "text", "first", "first", "second", "second", "warning", "warning")
_NAME = 8  # the last characters of a request id, as in the table of requests


@dataclass(frozen=True, slots=True)
class Shown:
    """One view: cells from (state of each cell, blocks a cell), the rows below, what a cell of several blocks shows."""

    cells: Callable[[Sequence[str], int], list[Cell]]
    foot: list[Strip]
    of_several: str = ""


def owner_view(pieces: Sequence[Piece], told: Mapping[str, Any], context: Context) -> Shown:
    """A letter and a colour for each request, the largest ones named below."""
    held = holders(pieces)
    given = letters(list(held))

    def cell(state: str, owner: str | None) -> Cell:
        if state == "leaked":
            return _LEAKED
        if owner is None or state in ("free", "cached"):
            return _IDLE.get(state, _UNTOLD)
        return _SHARED if is_shared(owner) else owner_cell(given.get(owner))

    def cells(states: Sequence[str], each: int) -> list[Cell]:
        most = cells_of(pieces, each, len(states))
        return [cell(state, owner) for state, (owner, _) in zip(states, most, strict=True)]

    say = context.say
    largest = list(held)[: max(2, context.height // 2)]
    items = [
        (owner_cell(given[name]), f"{paint.one_line(name)[-_NAME:]} {held[name][0]} ({paint.age(held[name][1])})")
        for name in largest
        if name in given
    ]
    rest = sum(blocks for name, (blocks, _) in held.items() if name not in given)
    items += [(_OTHERS, f"{say['others']} {rest}")] if rest else []
    foot = legend(items + signs(pieces, context), context)
    step = told.get("owners_step")
    if isinstance(step, int) and step > 1:
        rows = paint.wrapped(say["owners_step"].format(n=step), context.width)
        foot += [paint.strip([(row, context.palette.get("dim"))]) for row in rows]
    return Shown(cells, foot, say["cell_owner"])


def owner_cell(letter: str | None) -> Cell:
    """Letter and colour of a request; neighbours in the alphabet differ."""
    return (letter, _OWNER_ROLES[ALPHABET.index(letter) % len(_OWNER_ROLES)]) if letter else _OTHERS


def signs(pieces: Sequence[Piece], context: Context) -> list[tuple[Cell, str]]:
    """What the signs stand for, with how many blocks; only those that are there."""
    counts: Counter[str] = Counter()
    for piece in pieces:
        shared = piece.state != "leaked" and piece.owner is not None and is_shared(piece.owner)
        if shared or piece.owner is None or piece.state == "leaked":
            counts["shared" if shared else piece.state] += piece.blocks
    known = {"shared": _SHARED, **_IDLE, "leaked": _LEAKED}
    said = {state: named(context.say, "bl", state) for state in known}
    return [(cell, f"{said[state]} {counts[state]}") for state, cell in known.items() if counts[state]]


def age_view(pieces: Sequence[Piece], context: Context) -> Shown:
    """A digit for each block in use, 0 to 9 by the logarithm of its age."""

    def cell(state: str, age: float | None) -> Cell:
        if state == "leaked":
            return _LEAKED
        return _IDLE.get(state, _UNTOLD) if age is None or state in ("free", "cached") else age_cell(age_digit(age))

    def cells(states: Sequence[str], each: int) -> list[Cell]:
        found = cells_of(pieces, each, len(states))
        return [cell(state, age) for state, (_, age) in zip(states, found, strict=True)]

    counts: Counter[int] = Counter()
    for piece in pieces:
        if piece.age is not None and piece.state != "leaked":
            counts[age_digit(piece.age)] += piece.blocks
    items = [(age_cell(digit), f"{bounds(digit)}: {counts[digit]}") for digit in sorted(counts)]
    idle = [item for item in signs(pieces, context) if item[0] != _SHARED]
    return Shown(cells, legend(items + idle, context), context.say["cell_age"])


def age_cell(digit: int) -> Cell:
    """Digit and shade: what is old stands out."""
    return str(digit), _AGE_ROLES[digit]


def bounds(digit: int) -> str:
    """The ages of a digit."""
    if digit == 0:
        return f"<{paint.age(AGES[0])}"
    low = paint.age(AGES[digit - 1])
    return f">={low}" if digit == len(AGES) else f"{low}-{paint.age(AGES[digit])}"


def legend(items: Sequence[tuple[Cell, str]], context: Context) -> list[Strip]:
    """Letters with what they mean, as many a row as fit; at most half of the panel, so that the map stays."""
    rows: list[list[tuple[str, Style]]] = [[]]
    used = 0
    for (letter, role), text in items:
        width = 2 + cell_len(text) + 2
        if used and used + width - 2 > context.width:
            rows.append([])
            used = 0
        rows[-1] += [(f"{letter} ", context.palette.get(role)), (f"{text}  ", context.palette.get("text"))]
        used += width
    return [paint.strip(row, context.width) for row in rows[: max(1, context.height // 2)]]
