"""Durations as people write them, for flags and configuration alike: `500ms`, `30s`, `5m`, `2h`, `7d`."""

from __future__ import annotations

import re

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "": 1.0}
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*(ms|s|m|h|d|)")
LONGEST = 3650 * 86_400.0  # ten years: what is longer is a slip, and timers refuse what is longer than 292


def seconds_of(text: str, least: float = 0.0, most: float = LONGEST) -> float:
    """Seconds of a number with a unit, or of a bare number. Raises ValueError, whose text completes "NAME: ..."."""
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * _UNITS[found[2]] if found else -1.0
    if not least <= seconds <= most:
        span = f"from {spoken(least)} to {spoken(most)}"
        raise ValueError(f"{text!r} is no duration {span}; write for example 500ms, 30s, 5m, 2h or 7d")
    return seconds


def spoken(seconds: float) -> str:
    """`seconds` in the largest unit that says it in a whole number: 5400 is `90m`."""
    for unit in ("d", "h", "m", "s"):
        number = seconds / _UNITS[unit]
        if number >= 1.0 and number == int(number):
            return f"{int(number)}{unit}"
    return f"{seconds * 1000:g}ms" if seconds else "0s"
