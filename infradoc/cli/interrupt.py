"""A request to end (SIGTERM, SIGHUP) takes the same way out as Ctrl-C, so that changes and children are cleaned up."""

from __future__ import annotations

import signal
from types import FrameType


def treat_as_interrupt() -> None:
    """From now on SIGTERM and SIGHUP raise KeyboardInterrupt in the main thread, unless they were being ignored.

    A program under nohup goes on when its terminal is closed, and a change that it makes stays under judgement.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _raise)


def _raise(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
