"""Logs as dashboards export them, the newest line first: recognised by stamps that fall, and turned round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.patterns.prefix import take_off
from infradoc_rules.patterns.stamps import unix_time

_LEAST = 4  # times that the clock falls; a log that is merged of two has fewer
_RISES = 0.05  # of the changes: writers whose lines cross
_STAMPED = 0.4  # of the lines; of a page that quotes a log in between the order says nothing
_LOOKED_AT = 400  # stamped lines that are asked before the whole text is
_YEAR = 2000  # of stamps without one: a leap year, so that every day exists
_HEAD = "Traceback (most recent call last):"
# llama.cpp's own stamps: minutes, seconds, milli- and microseconds since its start. Without them it counts its tasks.
_SINCE_START = lazy(r"(\d{1,5})\.(\d\d)\.(\d{3})\.(\d{3}) [A-Z] ")
_TASK = lazy(r"\| task (\d{1,12}) \| processing task")
_SLOT = "slot "
_FRAME = lazy(r'^\s*File "[^"]{1,300}", line \d+')


def oldest_first(lines: Sequence[str]) -> list[str] | None:
    """The lines from the oldest to the newest; None where they are in that order, or in none.

    A record of several lines (a traceback) is kept as it stands where its own lines were left in order.
    """
    overturned = _overturned(lines)
    if not overturned and not _falls(lines, _LOOKED_AT):
        return None
    if not _falls(lines, len(lines), 0 if overturned else _LEAST):
        return None
    if overturned or not _kept_records(lines):
        return list(reversed(lines))
    return [line for record in reversed(_records(lines)) for line in record]


def _falls(lines: Sequence[str], most: int, least: int = _LEAST) -> bool:
    """Whether the stamps of the first lines (at most so many stamped ones) fall, so often at least."""
    times: list[float] = []
    full = 0
    for line in lines:
        full += bool(line.strip()) and (not line.startswith(_SLOT) or "processing task" in line)
        times += _times(line)
        if len(times) >= most:
            break
    if least and len(times) > 2 and full > len(times) and _from_its_end(lines, times):
        return True
    falls = sum(after < before for before, after in pairwise(times))
    rises = sum(after > before for before, after in pairwise(times))
    return falls >= least and rises <= _RISES * falls and (least == 0 or len(times) >= _STAMPED * full)


def _from_its_end(lines: Sequence[str], times: Sequence[float]) -> bool:
    """Whether a log of long messages and few stamps ends in the stamp that is the first of all, and begins in none.

    The lines of a message without a stamp stand below the one that has it; in a log that begins with such and ends with
    a stamp they stand above.
    """
    filled = [line for line in lines if line.strip()]
    ends = [take_off(line[:200]).stamp is not None for line in (filled[0], filled[-1])]
    return ends == [False, True] and all(after < before for before, after in pairwise(times))


def turned(lines: Sequence[str], streams: Sequence[str]) -> list[str] | None:
    """As `oldest_first`, for lines of several streams (the name of each line's): one of them in order tells of all."""
    for name in dict.fromkeys(streams):
        own = [line for line, stream in zip(lines, streams, strict=True) if stream == name]
        found = oldest_first(own)
        if found is not None and found == own[::-1]:
            return list(reversed(lines))
    return oldest_first(lines)


def _times(line: str) -> Iterator[float]:
    stamp = take_off(line[:200]).stamp if line else None
    when = None
    if stamp is not None:
        when = unix_time(*stamp, year=_YEAR) if stamp[0] != "offset" else None
    elif line[:1].isdigit() and (found := _SINCE_START.match(line)) is not None:
        minutes, seconds, millis, micros = map(int, found.groups())
        when = 60.0 * minutes + seconds + millis / 1e3 + micros / 1e6
    elif "processing task" in line and (found := _TASK.search(line)) is not None:
        when = float(found[1])
    if when is not None:
        yield when


def _kept_records(lines: Sequence[str]) -> bool:
    """Whether the first traceback has its frames below its head."""
    return next((below for _, below in _heads(lines)), False)


def _overturned(lines: Sequence[str]) -> bool:
    """Whether every traceback has its frames above its head: proof enough, also where hardly a line has a stamp."""
    heads = list(_heads(lines))
    return bool(heads) and all(above and not below for above, below in heads)


def _heads(lines: Sequence[str]) -> Iterator[tuple[bool, bool]]:
    """Of each head of a traceback, whether a frame stands right above it and right below it."""
    for place, line in enumerate(lines):
        if _HEAD in line:
            above, below = lines[place - 1] if place else "", lines[place + 1] if place + 1 < len(lines) else ""
            yield bool(_FRAME.match(take_off(above).message)), bool(_FRAME.match(take_off(below).message))


def _records(lines: Sequence[str]) -> list[list[str]]:
    """Each stamped line with the lines below it that have no stamp."""
    records: list[list[str]] = [[]]
    for line in lines:
        if line and take_off(line[:200]).stamp is not None:
            records.append([])
        records[-1].append(line)
    return records
