"""Time stamps of log lines to Unix seconds."""

from __future__ import annotations

import calendar
import re
from collections.abc import Sequence

_FULL = re.compile(
    r"(\d{4})[-/](\d\d)[-/](\d\d)(?:[T ]| - )(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
    r"(Z| ?[+-]\d\d:?\d\d)?"
)
_DAY = re.compile(r"(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")
_US = re.compile(r"(\d\d)/(\d\d)/(\d{4})[- ](\d\d):(\d\d):(\d\d)")
_SYSLOG = re.compile(r"([A-Z][a-z]{2}) ([ \d]\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_MONTHS = {name: place for place, name in enumerate(calendar.month_abbr) if name}


def unix_time(form: str, text: str, year: int | None = None, utc_offset: float = 0.0) -> float | None:
    """Unix seconds of a stamp as `prefix.take_off` gives it; None where it does not say (no year, no date).

    utc_offset: seconds that the writer's clock is ahead of UTC, for stamps that do not say so.
    """
    if form == "full" and (found := _FULL.match(text)):
        parts = [int(part) for part in found.groups()[:6]]
        zone = found.group(8)
        return _seconds(parts, found.group(7), _zone(zone) if zone else utc_offset)
    if form == "us" and (found := _US.match(text)):
        month, day, its_year, *clock = (int(part) for part in found.groups())
        return _seconds([its_year, month, day, *clock], None, utc_offset)
    if year is None:
        return None
    if form == "day" and (found := _DAY.match(text)):
        return _seconds([year, *(int(part) for part in found.groups()[:5])], found.group(6), utc_offset)
    if form == "syslog" and (found := _SYSLOG.match(text)):
        clock = [int(part) for part in found.groups()[2:5]]
        return _seconds([year, _MONTHS.get(found.group(1), 0), int(found.group(2)), *clock], found.group(6), utc_offset)
    return None


def _zone(text: str) -> float:
    if text == "Z":
        return 0.0
    sign = -1 if "-" in text else 1
    digits = re.sub(r"\D", "", text)
    return float(sign * (int(digits[:2]) * 3600 + int(digits[2:4]) * 60))


def _seconds(parts: Sequence[int], fraction: str | None, offset: float) -> float | None:
    """parts: year, month, day, hour, minute, second."""
    year, month, day, hour, minute, second = parts
    if not (1970 <= year <= 9999 and 1 <= month <= 12 and hour < 24 and minute < 60 and second <= 60):
        return None
    if not 1 <= day <= calendar.monthrange(year, month)[1]:  # such as 02-29 in a year without it
        return None
    whole = calendar.timegm((year, month, day, hour, minute, second, 0, 0, 0))
    return whole + (float(f"0.{fraction}") if fraction else 0.0) - offset
