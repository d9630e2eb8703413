"""argparse with one-sentence errors, and the value types that several commands share."""

from __future__ import annotations

import argparse
import math
from datetime import UTC, datetime
from typing import NoReturn

from infradoc.durations import LONGEST, seconds_of
from infradoc.errors import InfradocError


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence with the way out."""

    def error(self, message: str) -> NoReturn:
        """Raise InfradocError instead of printing usage and leaving."""
        text = message[:1].upper() + message[1:]
        raise InfradocError(f"{text}.", f"See `{self.prog} --help`.")


def duration(text: str, least: float = 0.0, most: float = LONGEST) -> float:
    """Seconds of `30s`, `2m`, `500ms`, `7d` or a bare number. Raises argparse.ArgumentTypeError."""
    try:
        return seconds_of(text, least, most)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def window(text: str) -> float:
    """A duration of at least a second and at most a day."""
    return duration(text, 1.0, 86_400.0)


def lasting(text: str) -> float:
    """A duration that is some time at all."""
    return duration(text, 0.001)


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
