"""Lines over time in braille dots: two columns of dots and four rows in each cell, each column from lowest to highest.

Marks stand on the time axis as letters, so that they read without colour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.style import Style
from textual.strip import Strip

from infradoc.fleet.model import Mark
from infradoc.tui.downsample import Axis, Floats
from infradoc.tui.paint import SERIES_ROLES, Palette, fitted, strip

# Bits of a braille cell, by row from the top, then column.
_WEIGHTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], dtype=np.int64)
LETTERS = {"finding": "F", "resolved": "o", "change": "C", "fix": "X", "lost": "L", "back": "b", "restart": "R"}
_RANK = {"fix": 0, "finding": 1, "restart": 2, "lost": 3, "change": 4, "back": 5, "resolved": 6}
_LABEL = 8  # cells for the values at the left


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a plot: its name, low and high of each dot column, and how its last value reads."""

    name: str
    low: Floats
    high: Floats
    last: str


@dataclass(frozen=True, slots=True)
class Plot:
    """What a plot shows. `axis` has two columns for each cell. `shown` turns a value into a label."""

    axis: Axis
    lines: Sequence[Line]
    shown: Callable[[float | None], str]
    marks: Sequence[Mark] = ()
    note: str = ""  # one sentence instead of lines that are empty
    now: float = 0.0
    top: float | None = None  # a fixed top of the scale
    now_word: str = "now"


def plot_width(width: int) -> int:
    """Columns of dots that a plot of `width` cells has room for."""
    return max(2, (width - _LABEL - 1) * 2)


def paint_plot(plot: Plot, width: int, height: int, palette: Palette) -> list[Strip]:
    """The rows of a plot: legend, dots, marks, time axis."""
    rows = max(1, height - 3)
    legend = legend_strip(plot, width, palette)
    drawn = [line for line in plot.lines if not np.all(np.isnan(line.high))]
    if not drawn:
        note = [strip([(fitted(plot.note, width), palette.get("dim"))])]
        return [legend, *note, *[strip([])] * (rows - 1), *axis_strips(plot, width, palette)]
    top = plot.top or ceiling(max(float(np.nanmax(line.high)) for line in drawn))
    cells = rasterized(plot, rows, top)
    body = []
    for row in range(rows):
        at = top if row == 0 else 0.0 if row == rows - 1 else top / 2 if rows >= 5 and row == rows // 2 else None
        label = fitted("" if at is None else plot.shown(at), _LABEL, right=True)
        parts = [(label, palette.get("dim")), ("┤" if at is not None else "│", palette.get("dim"))]
        body.append(strip(parts + runs(cells[row], palette)))
    return [legend, *body, *axis_strips(plot, width, palette)]


def legend_strip(plot: Plot, width: int, palette: Palette) -> Strip:
    """Names of the lines with their last values, in the lines' styles."""
    parts = []
    for place, line in enumerate(plot.lines):
        parts += [("  " if place else "", palette.get("text")), ("━ ", palette.get(SERIES_ROLES[place % 3]))]
        parts += [(f"{line.name} ", palette.get("text")), (line.last, palette.get("strong"))]
    return strip(parts, width)


def ceiling(value: float) -> float:
    """The next round number above, so that the scale does not jump at each frame."""
    if value <= 0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if power * step >= value * 0.999)


def rasterized(plot: Plot, rows: int, top: float) -> list[list[tuple[str, str]]]:
    """(character, role) of each cell. Work is columns x lines, whatever number of samples lies behind them."""
    width = plot.axis.width // 2
    bits = np.stack([line_bits(line, rows, width, top) for line in plot.lines])
    joined = np.bitwise_or.reduce(bits, axis=0)
    owner = np.argmax(bits > 0, axis=0)
    marked = {at // 2 for mark in plot.marks if (at := plot.axis.column(mark.time)) is not None}
    blank = ["┊" if cell in marked else " " for cell in range(width)]
    return [
        [
            (chr(0x2800 + dots), SERIES_ROLES[line % 3]) if dots else (blank[cell], "dim")
            for cell, (dots, line) in enumerate(zip(joined[row].tolist(), owner[row].tolist(), strict=True))
        ]
        for row in range(rows)
    ]


def line_bits(line: Line, rows: int, width: int, top: float) -> NDArray[np.int64]:
    """Bits of the braille dots of one line, [rows, width]: in each column all dots from its lowest to its highest."""
    low, high = dots_of(line.low[: 2 * width], top, rows * 4), dots_of(line.high[: 2 * width], top, rows * 4)
    # A jump is a line, not two points: each column reaches to where its left neighbour ends.
    low[1:] = np.fmax(low[1:], high[:-1] - 1)
    high[1:] = np.fmin(high[1:], dots_of(line.low[: 2 * width - 1], top, rows * 4) + 1)
    rowed = np.arange(rows * 4)[:, None]
    mask = (rowed >= high) & (rowed <= low) & ~np.isnan(line.high[: 2 * width])  # NaN compares as false
    return (mask.reshape(rows, 4, width, 2) * _WEIGHTS[None, :, None, :]).sum(axis=(1, 3))  # type: ignore[no-any-return]


def dots_of(values: Floats, top: float, dots: int) -> Floats:
    """The row of dots of each value, counted from the top; NaN stays."""
    return dots - 1 - np.round(np.clip(values / top, 0.0, 1.0) * (dots - 1))


def runs(cells: Sequence[tuple[str, str]], palette: Palette) -> list[tuple[str, Style]]:
    """Neighbours of one style as one piece."""
    parts: list[tuple[str, str]] = []
    for character, role in cells:
        if parts and (parts[-1][1] == role or character == " "):
            parts[-1] = (parts[-1][0] + character, parts[-1][1])
        else:
            parts.append((character, role))
    return [(text, palette.get(role)) for text, role in parts]


def axis_strips(plot: Plot, width: int, palette: Palette) -> list[Strip]:
    """The row of marks and the row of times before now."""
    cells = plot.axis.width // 2
    letters: list[tuple[str, str]] = [("─", "dim")] * cells
    for mark in sorted(plot.marks, key=lambda one: -_RANK[one.kind]):
        column = plot.axis.column(mark.time)
        if column is not None and column // 2 < cells:
            role = mark.severity if mark.severity in ("warning", "critical") and mark.kind == "finding" else "strong"
            letters[column // 2] = (LETTERS[mark.kind], role)
    marks = strip([(" " * _LABEL, palette.get("dim")), ("└", palette.get("dim")), *runs(letters, palette)])
    left, right = (time_label(moment - plot.now, plot) for moment in (plot.axis.start, plot.axis.end))
    gap = max(1, cells - cell_len(left) - cell_len(right))
    times = strip([(" " * (_LABEL + 1) + left + " " * gap + right, palette.get("dim"))], width)
    return [marks, times]


def time_label(seconds: float, plot: Plot) -> str:
    """A distance from now: `-90 s`, `-5 min`; a column or less is none."""
    if abs(seconds) <= plot.axis.step:
        return plot.now_word
    sign, value = ("-" if seconds < 0 else "+"), abs(seconds)
    return f"{sign}{value:.0f} s" if value < 300 else f"{sign}{value / 60:.0f} min"
