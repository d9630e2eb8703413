"""A whole text that holds the lines of a log in another form: an export, a mail, a string, numbers between lines."""

from __future__ import annotations

from collections.abc import Sequence

from infradoc.artefacts.exports import exported
from infradoc.artefacts.literals import printed
from infradoc.artefacts.mailed import decoded, flowed
from infradoc.artefacts.paged import unnumbered, unreported

_LEAST = 6  # lines of a text that is said to be spaced
_BLANK = 0.9  # of every other line of one


def unfolded(lines: list[str]) -> list[str]:
    """The lines inside such a text, and of any other text its own. Places named in a report count the lines inside."""
    lines = decoded(lines) or flowed(lines) or unreported(lines) or lines
    return exported(lines) or printed(lines) or unnumbered(lines) or _closed_up(lines)


def _closed_up(lines: list[str]) -> list[str]:
    """Without the blank line that a mail or a web page put behind each one: tables are no tables with them."""
    for start in (0, 1):
        blank, full = lines[1 - start :: 2], lines[start::2]
        if len(full) >= _LEAST and _empty(blank) >= _BLANK * len(blank) and not _empty(full):
            return [line for line in lines if line.strip()]
    return lines


def _empty(lines: Sequence[str]) -> int:
    return sum(1 for line in lines if not line.strip())
