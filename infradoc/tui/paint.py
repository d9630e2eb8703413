"""Rows of characters with styles, made in workers: texts of others are shown as they are, never read as markup."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from infradoc.errors import visible

PLAIN = Style()


@dataclass(frozen=True, slots=True)
class Palette:
    """Styles by role, taken from the theme on the UI thread."""

    styles: Mapping[str, Style] = field(default_factory=dict)

    def get(self, role: str) -> Style:
        """The style of a role; plain for one that the theme does not have."""
        return self.styles.get(role, PLAIN)


# Roles of the palette and the theme variables behind them.
ROLES: Mapping[str, tuple[str, bool]] = {
    "first": ("primary", False),
    "second": ("accent", False),
    "third": ("foreground", False),
    "good": ("success", False),
    "warning": ("warning", True),
    "critical": ("error", True),
    "title": ("foreground", True),
}
SERIES_ROLES = ("first", "second", "third")


def palette_of(variables: Mapping[str, str]) -> Palette:
    """A palette from the CSS variables of a theme."""
    styles = {"dim": Style(dim=True), "text": PLAIN, "strong": Style(bold=True)}
    for role, (variable, bold) in ROLES.items():
        color = variables.get(variable, "")
        styles[role] = Style(color=color if color.startswith("#") else None, bold=bold)
    return Palette(styles)


def one_line(text: object) -> str:
    """A text of others on one line, with control characters written out."""
    return visible(str(text)).replace("\n", " ")


def fitted(text: str, width: int, right: bool = False) -> str:
    """`text` in exactly `width` cells: cut with an ellipsis, or filled with blanks. Wide characters count two."""
    if width <= 0:
        return ""
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…"
    fill = " " * (width - length)
    return fill + text if right else text + fill


def strip(parts: Iterable[tuple[str, Style]], width: int | None = None) -> Strip:
    """One row; `width` cuts or fills it."""
    made = Strip([Segment(text, style) for text, style in parts if text])
    return made if width is None else made.adjust_cell_length(width, PLAIN)


def wrapped(text: str, width: int) -> list[str]:
    """Rows of at most `width` cells, broken at blanks, and inside what has none (Chinese)."""
    rows: list[str] = []
    for paragraph in text.split("\n"):
        row = ""
        for word in paragraph.split(" "):
            joined = f"{row} {word}" if row else word
            if cell_len(joined) <= width:
                row = joined
                continue
            if row and (cell_len(word) <= width or word.isascii()):
                rows.append(row)
                row = ""
            row = f"{row} {word}" if row else word
            while cell_len(row) > width:
                cut = next(n for n in range(len(row), 0, -1) if n == 1 or cell_len(row[:n]) <= width)
                rows.append(row[:cut])
                row = row[cut:]
        rows.append(row)
    return rows


_CLOSING = "，。；：、！？）」』】》”’％%,.;:!?)]}"
_INDENT = 6
_OPENING = "（「『【《“‘([{"


def broken(text: Text, width: int) -> Text:
    """`text` broken into rows of at most `width` cells at blanks and between Chinese characters.

    Rich breaks at blanks alone: a Chinese paragraph with one English word in it would leave half a row empty. Rows that
    go on are as far in as their paragraph.
    """
    rows = Text()
    for place, line in enumerate(text.split("\n", allow_blank=True)):
        indent = min(len(line.plain) - len(line.plain.lstrip(" •")), _INDENT)
        cuts = breaks(line.plain, width, indent)
        if place:
            rows.append("\n")
        for number, piece in enumerate(line.divide(cuts)):
            if number:
                piece = piece[len(piece.plain) - len(piece.plain.lstrip(" ")) :]
                rows.append("\n" + " " * indent)
            rows.append_text(piece)
    return rows


def breaks(line: str, width: int, indent: int = 0) -> list[int]:
    """Places in `line` where a new row begins; those after the first have `indent` cells less."""
    cuts: list[int] = []
    start = last = used = 0
    inked = False
    for place, character in enumerate(line):
        if inked and may_break(line[place - 1], character):  # a row of blanks alone would make none shorter
            last = place
        inked = inked or character not in " •"
        used += cell_len(character)
        while used > max(2, width) and character != " ":
            cut = last if last > start else place
            if cut == start:  # one character, and no row is wide enough for it
                break
            cuts.append(cut)
            kept = line[cut : place + 1].lstrip(" ")
            start, used, inked = cut, indent + cell_len(kept), bool(kept.strip("•"))
    return cuts


def may_break(before: str, after: str) -> bool:
    """Whether a row may end between two characters."""
    if before == " ":
        return after != " "
    if after in _CLOSING or before in _OPENING or after == " ":
        return False
    return cell_len(before) > 1 or cell_len(after) > 1


def bar(share: float | None, width: int) -> str:
    """A share of 1 as a bar of eighths of a cell; `-` when it is not known."""
    if share is None or math.isnan(share):
        return fitted("-", width)
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return fitted("█" * full + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[rest], width)


def seconds(value: float | None) -> str:
    """A time for people."""
    if value is None or math.isnan(value):
        return "-"
    if 0 < value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if 0 < value < 100 else f"{value:.0f} s"


def number(value: float | None) -> str:
    """A figure for people, short."""
    if value is None or math.isnan(value):
        return "-"
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.1f}{unit}"
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.1f}"


def size(value: float | None) -> str:
    """Bytes for people."""
    if value is None:
        return "-"
    return f"{value / 2**30:.1f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"


def percent(value: float | None) -> str:
    """A share for people."""
    return "-" if value is None or math.isnan(value) else f"{value:.0%}"


def age(value: float | None) -> str:
    """How old something is."""
    if value is None:
        return "-"
    return f"{value:.0f} s" if value < 120 else f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"
