"""A request to end (SIGTERM, SIGHUP) takes the same way out as Ctrl-C, so that changes and children are cleaned up."""

from __future__ import annotations

import signal
from types import FrameType


def treat_as_interrupt() -> None:
    """From now on SIGTERM and SIGHUP raise KeyboardInterrupt in the main thread."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _raise)


def _raise(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
