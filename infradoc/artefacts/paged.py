"""What a page or a shell put between lines: numbers on lines of their own, PowerShell's report of a program's error."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from infradoc_rules.lazy_pattern import lazy

_LEAST = 4  # numbered lines
_REPORT = "FullyQualifiedErrorId"
_AT = lazy(r"^At (?:line:\d{1,6}|[A-Za-z]:\\.{0,300}?) ?char:\d{1,6}$")
_PROGRAM = lazy(r"^[\w.-]{1,60} : (?=\S)")
_LONGEST = 14  # lines of such a report: PowerShell breaks them at the width of its window
_MISSING = 0.05  # of the numbers: lines that were folded away


def unnumbered(lines: Sequence[str]) -> list[str] | None:
    """The lines without the numbers between them; None where there are none, or where they mean something else."""
    places: list[int] = []
    wanted = None
    for index, line in enumerate(lines):
        text = line.strip()
        if not text.isascii() or not text.isdigit() or len(text) > 6:
            continue
        number = int(text)
        if wanted is None or number == wanted:
            places.append(index)
            wanted = number + 1
    if len(places) < _LEAST and not (len(places) > 1 and places[0] == 0 and wanted == len(places) + 1):
        return None
    gaps = [after - before for before, after in pairwise(places)]
    if sum(gap != 2 for gap in gaps) > _MISSING * len(gaps):
        return None
    taken = set(places)
    return [line for index, line in enumerate(lines) if index not in taken]


def unreported(lines: Sequence[str]) -> list[str] | None:
    """The lines without the report that PowerShell 5 makes of the first one that a program sends to its errors."""
    end = next((place for place, line in enumerate(lines[: 2 * _LONGEST]) if _REPORT in line), None)
    if end is None:
        return None
    start = next((place for place in range(end, -1, -1) if _AT.match(lines[place].rstrip())), None)
    if start is None or start == 0 or end - start > _LONGEST:
        return None
    after = end + 1 + (not "".join(lines[end + 1 : end + 2]).strip())
    return [*lines[: start - 1], _PROGRAM.sub("", lines[start - 1], count=1), *lines[after:]]
