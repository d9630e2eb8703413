"""Tables that host tools print: a header of column names, then rows of as many words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from infradoc_rules.lazy_pattern import lazy

_SIZE = lazy(r"^(?P<number>\d+(?:[.,]\d+)?) ?(?P<unit>[kKmMgGtT])?(?P<binary>i)?[bB]?$")
_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, slots=True)
class Row:
    """One row by column name (upper case); `index` of its line."""

    index: int
    cells: Mapping[str, str]


def rows_of(lines: Sequence[str], start: int, names: Sequence[str]) -> Iterator[Row]:
    """The rows below the header on line `start`, up to the first that is too short. The last column takes the rest."""
    for index in range(start + 1, len(lines)):
        words = lines[index].split(None, len(names) - 1)
        if len(words) < len(names):
            return
        yield Row(index, dict(zip(names, words, strict=True)))


def size_of(text: str, unit: int = 1) -> float | None:
    """ "58.1g", "6.3GiB", "9721Mi" or a bare number of `unit` bytes, in bytes; None for anything else."""
    found = _SIZE.match(text.strip())
    if found is None:
        return None
    number = float(found["number"].replace(",", "."))
    return number * (_FACTORS[(found["unit"] or "").lower()] if found["unit"] else unit)


def percent_of(text: str) -> float | None:
    """ "214.18%" or "99.7" as a ratio; None for anything else."""
    try:
        return float(text.strip().rstrip("%").replace(",", ".")) / 100
    except ValueError:
        return None
