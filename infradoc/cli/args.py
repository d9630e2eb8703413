"""argparse with one-sentence errors, and the value types that several commands share."""

from __future__ import annotations

import argparse
import math
import re
from datetime import UTC, datetime
from typing import NoReturn

from infradoc.errors import InfradocError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "": 1.0}
_LONGEST = 1e9  # seconds, 30 years: digits without end become infinite, and no timer takes that
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence with the way out."""

    def error(self, message: str) -> NoReturn:
        """Raise InfradocError instead of printing usage and leaving."""
        text = message[:1].upper() + message[1:]
        raise InfradocError(f"{text}.", f"See `{self.prog} --help`.")


def duration(text: str) -> float:
    """Seconds of `30s`, `2m`, `500ms`, `7d` or a bare number. Raises argparse.ArgumentTypeError."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; write for example 30s, 2m or 500ms")
    seconds = float(found.group(1)) * _UNITS[found.group(2)]
    if seconds > _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is longer than any wait; write for example 30s, 2m or 1h")
    return seconds


def window(text: str) -> float:
    """A duration of at least a second and at most a day."""
    seconds = duration(text)
    if not 1.0 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is outside 1s to 24h")
    return seconds


def moment(text: str) -> float:
    """Unix seconds of a number or an ISO 8601 time (UTC when it names no zone). Raises argparse.ArgumentTypeError."""
    message = f"{text!r} is no time; write Unix seconds or for example 2026-11-29T20:52:42"
    try:
        seconds = float(text)
    except ValueError:
        pass
    else:
        if not math.isfinite(seconds):  # "nan" is a float too, and everything is outside a span that ends there
            raise argparse.ArgumentTypeError(message)
        return seconds
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(message) from error
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
