"""Lines that say when the table below them was taken: stamps, captions in words, the command with its time."""

from __future__ import annotations

import re

from infradoc_rules.lazy_pattern import lazy

_STAMP_LINE = lazy(
    r"^(?:#|=+|-+|\[)? ?(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\w* )?(?:\w{3} +\d{1,2} )?(?:\d{4}-\d\d-\d\d[T ])?"
    r"\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?(?: [A-Z]{3,4})?(?: \d{4})?\]?(?: ?[=-]+)?$"
)
CAPTION = lazy(
    r"(?i)^(?:#+|-+|=+|//)? ?(?:after |at |\+ ?|t ?= ?\+?)?(?P<n>\d+(?:\.\d+)?"
    r"|an?|one|two|three|four|five|six|seven|eight|nine|ten|twelve"
    r"|half an) ?(?P<unit>h|hrs?|hours?|m|min|mins|minutes?|days?)"
    r"(?: (?:later|after\b.*|on|in|of load|uptime))?[:.]?(?: ?[-=]+)?$"
)
_COUNTS = {
    "a": 1.0, "an": 1.0, "one": 1.0, "two": 2.0, "three": 3.0, "four": 4.0, "five": 5.0, "six": 6.0, "seven": 7.0,
    "eight": 8.0, "nine": 9.0, "ten": 10.0, "twelve": 12.0, "half an": 0.5,
}  # fmt: skip
ASKED = lazy(r"^(?:[$#] ?)?(?:ps|top|docker|kubectl|free)\b.*?(?:# ?|; ?date.*)(?P<time>\d\d:\d\d(?::\d\d)?)\s*$")
_SHORT = lazy(r"^(?:#|-+|=+|\[)? ?\d\d:\d\d\]?(?: ?(?:UTC|[ap]m))?(?: ?[-=]+)?$")
_UNITS = {"h": 3600.0, "m": 60.0, "d": 86_400.0}


def is_stamp(text: str) -> bool:
    """Whether the line is a date and time, or a time of day, and nothing else."""
    return bool(_STAMP_LINE.match(text) or _SHORT.match(text))


def says_when(line: str) -> bool:
    """Whether the line above a table says when it was taken."""
    text = line.strip()
    return is_stamp(text) or bool(CAPTION.match(text) or ASKED.match(text))


def seconds_of(caption: re.Match[str]) -> float:
    """The time that a caption such as "two hours later" names, in seconds."""
    count = _COUNTS.get(caption["n"].lower()) or float(caption["n"])
    return count * _UNITS[caption["unit"][0].lower()]
