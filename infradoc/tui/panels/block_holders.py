"""Who holds the blocks and for how long, joined with their states: what the engine sent, checked and counted."""

from __future__ import annotations

import math
import string
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Runs = Sequence[tuple[str, int]]  # (state, blocks in a row)
ALPHABET = string.ascii_uppercase + string.ascii_lowercase
_HALF = len(string.ascii_uppercase)
_SHARED = " requests"
# Ages of the digits 0 to 9, seconds; each is about three times the one before, as near as people count time.
AGES = (1.0, 3.0, 10.0, 30.0, 120.0, 300.0, 1200.0, 3600.0, 10800.0)


@dataclass(frozen=True, slots=True)
class Piece:
    """Blocks in a row that are alike. `owner` and `age` as `/admin/blocks` tells them."""

    start: int
    blocks: int
    state: str
    owner: str | None
    age: float | None  # seconds


def clean_runs(runs: Any) -> list[tuple[str, int]]:
    """(state, length) of what the engine sent; anything else is left out."""
    if not isinstance(runs, list):
        return []
    good = [row for row in runs if isinstance(row, list) and len(row) == 2 and is_length(row[1])]
    return [(str(state), max(0, length)) for state, length in good]


def clean_pieces(told: Mapping[str, Any]) -> list[Piece]:
    """States joined with owners and ages; nothing where the engine tells none, or none that fit its states."""
    runs, rows = clean_runs(told.get("runs")), told.get("owners")
    if not isinstance(rows, list):
        return []
    good = [row for row in rows if isinstance(row, list) and len(row) == 3 and is_length(row[2])]
    total = sum(length for _, length in runs)
    if not total or sum(max(0, row[2]) for row in good) != total:
        return []
    return list(_joined(runs, [(_owner(owner), seconds_of(age), length) for owner, age, length in good]))


def _joined(runs: Runs, rows: Sequence[tuple[str | None, float | None, int]]) -> Iterable[Piece]:
    """Cut wherever the state, the owner or the age changes; both sides cover the same blocks."""
    held = iter([row for row in rows if row[2] > 0])
    owner, age, left = next(held)
    start = 0
    for state, length in runs:
        while length > 0:
            if not left:
                owner, age, left = next(held)
            blocks = min(length, left)
            yield Piece(start, blocks, state, owner, age)
            start, length, left = start + blocks, length - blocks, left - blocks


def holders(pieces: Iterable[Piece]) -> dict[str, tuple[int, float]]:
    """Request -> (blocks that it alone holds, age of its oldest), the largest first. A leaked block has no holder."""
    found: dict[str, tuple[int, float]] = {}
    for piece in pieces:
        if piece.owner is not None and piece.state != "leaked" and not is_shared(piece.owner):
            blocks, oldest = found.get(piece.owner, (0, 0.0))
            found[piece.owner] = (blocks + piece.blocks, max(oldest, piece.age or 0.0))
    return dict(sorted(found.items(), key=lambda item: (-item[1][0], item[0])))


def letters(names: Sequence[str]) -> dict[str, str]:
    """A letter for each of the first 52 names, capitals for the first 26.

    It follows from the name itself where no other has it, so that a request keeps its letter while others come and go.
    """
    given: dict[str, str] = {}
    for begin in (0, _HALF):
        free = list(ALPHABET[begin : begin + _HALF])
        for name in sorted(names[begin : begin + _HALF]):
            place = zlib.crc32(name.encode("utf-8", "replace")) % _HALF
            letter = next(free[(place + step) % _HALF] for step in range(_HALF) if free[(place + step) % _HALF])
            given[name] = letter
            free[free.index(letter)] = ""
    return given


def cells_of(pieces: Iterable[Piece], each: int, count: int) -> list[tuple[str | None, float | None]]:
    """For each of `count` cells of `each` blocks: who holds most of its blocks, and the age of the oldest."""
    tallies: list[dict[str, int]] = [{} for _ in range(count)]
    ages: list[float | None] = [None] * count
    for piece in pieces:
        owner, age, start, end = piece.owner, piece.age, piece.start, piece.start + piece.blocks
        if owner is None and age is None:
            continue
        for cell in range(start // each, -(-end // each)):
            if owner is not None:
                inside = min(end, (cell + 1) * each) - max(start, cell * each)
                tallies[cell][owner] = tallies[cell].get(owner, 0) + inside
            known = ages[cell]
            if age is not None and (known is None or age > known):
                ages[cell] = age
    most = (max(tally, key=tally.__getitem__) if tally else None for tally in tallies)
    return list(zip(most, ages, strict=True))


def is_shared(owner: str) -> bool:
    """Whether this is the name of a block that several requests hold."""
    return owner.endswith(_SHARED) and owner[: -len(_SHARED)].isdigit()


def age_digit(age: float) -> int:
    """0 for the youngest, 9 for the oldest."""
    return sum(1 for bound in AGES if age >= bound)


def is_length(value: Any) -> bool:
    """Whether it can be a number of blocks."""
    return isinstance(value, int) and not isinstance(value, bool)


def seconds_of(value: Any) -> float | None:
    """An age that was sent; None for anything that is none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _owner(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
