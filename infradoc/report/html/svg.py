"""One plot as SVG: a line over time, the threshold as a dashed line, the onset as an upright one. Pure text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import groupby
from typing import TypeGuard

from infradoc.report.plots import Plot

WIDTH, HEIGHT = 640, 150
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 14, 24
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_ROOM = 0.08  # of the span, above and below the line
_LARGEST = 1e300  # beyond it the span itself may be no number


def to_svg(plot: Plot, words: dict[str, str]) -> str:
    """The plot as an <svg> element, styled by the page's classes; `words` has "threshold" and "onset"."""
    scale = _Scale(plot)
    label = escape(plot.title, quote=True)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}" class="plot">']
    parts += _axes(plot, scale)
    if is_drawn(plot.threshold):
        height = scale.y(plot.threshold)
        text = escape(f"{words['threshold']} {short(plot.threshold)}")
        parts.append(f'<line class="threshold" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height:.1f}" y2="{height:.1f}"/>')
        parts.append(f'<text class="mark" x="{WIDTH - RIGHT}" y="{height - 4:.1f}" text-anchor="end">{text}</text>')
    if plot.onset is not None and plot.times[0] <= plot.onset <= plot.times[-1]:
        at = scale.x(plot.onset)
        parts.append(f'<line class="onset" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text class="mark" x="{at + 4:.1f}" y="{TOP + 8}">{escape(words["onset"])}</text>')
    parts += [f'<polyline class="line" points="{points}"/>' for points in _runs(plot, scale)]
    return "".join([*parts, "</svg>"])


def is_drawn(value: float | None) -> TypeGuard[float]:
    """Whether a value has a place on paper."""
    return value is not None and math.isfinite(value) and abs(value) <= _LARGEST


def short(value: float) -> str:
    """A number in at most six characters: 0.25, 12, 3.1k, 46M."""
    for factor, letter in _UNITS:
        if abs(value) >= factor:
            return f"{value / factor:.3g}{letter}"
    return f"{value:.3g}"


class _Scale:
    """From times and values to pixels; the threshold is always inside."""

    def __init__(self, plot: Plot) -> None:
        values = [value for value in (*plot.values, plot.threshold) if is_drawn(value)]
        low, high = min(values, default=0.0), max(values, default=1.0)
        room = (high - low) * _ROOM or abs(high) * _ROOM or 1.0
        self.low, self.high = (0.0 if 0 <= low < (high - low) else low - room), high + room
        self.start, self.end = plot.times[0], max(plot.times[-1], plot.times[0] + 1e-9)

    def x(self, time: float) -> float:
        return LEFT + (time - self.start) / (self.end - self.start) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (value - self.low) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)


def _axes(plot: Plot, scale: _Scale) -> Iterator[str]:
    floor = HEIGHT - BOTTOM
    yield f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{floor}" y2="{floor}"/>'
    for value in (scale.low, (scale.low + scale.high) / 2, scale.high):
        yield f'<text class="tick" x="{LEFT - 6}" y="{scale.y(value) + 4:.1f}" text-anchor="end">{short(value)}</text>'
    for time, anchor in ((plot.times[0], "start"), (plot.times[-1], "end")):
        clock = datetime.fromtimestamp(time, UTC).strftime("%H:%M:%S")
        yield f'<text class="tick" x="{scale.x(time):.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{clock} UTC</text>'


def _runs(plot: Plot, scale: _Scale) -> Iterator[str]:
    """The points of each stretch with data: a gap is drawn as a gap."""
    pairs: Sequence[tuple[float, float | None]] = list(zip(plot.times, plot.values, strict=True))
    for there, stretch in groupby(pairs, key=lambda pair: is_drawn(pair[1])):
        if there:
            yield " ".join(f"{scale.x(time):.1f},{scale.y(value):.1f}" for time, value in stretch if value is not None)
