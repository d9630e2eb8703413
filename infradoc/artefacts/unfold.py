"""A whole text that holds the lines of a log in another form: an export, a program's string, every other line blank."""

from __future__ import annotations

from collections.abc import Sequence

from infradoc.artefacts.exports import exported
from infradoc.artefacts.literals import printed

_LEAST = 6  # lines of a text that is said to be spaced
_BLANK = 0.9  # of every other line of one


def unfolded(lines: list[str]) -> list[str]:
    """The lines inside such a text, and of any other text its own. Places named in a report count the lines inside."""
    return exported(lines) or printed(lines) or _closed_up(lines)


def _closed_up(lines: list[str]) -> list[str]:
    """Without the blank line that a mail or a web page put behind each one: tables are no tables with them."""
    for start in (0, 1):
        blank, full = lines[1 - start :: 2], lines[start::2]
        if len(full) >= _LEAST and _empty(blank) >= _BLANK * len(blank) and not _empty(full):
            return [line for line in lines if line.strip()]
    return lines


def _empty(lines: Sequence[str]) -> int:
    return sum(1 for line in lines if not line.strip())
