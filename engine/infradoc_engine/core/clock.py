"""Time as an argument: the engine runs on the host's monotonic clock, the simulator on a virtual one."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of seconds that never goes back; the zero point means nothing."""

    def now(self) -> float:
        """Seconds on this clock."""
        ...


class MonotonicClock:
    """The host's monotonic clock."""

    def now(self) -> float:
        """Seconds of `time.monotonic`."""
        return time.monotonic()


class VirtualClock:
    """A clock that moves only when told to. Not safe for several threads."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        """Seconds that were advanced so far, plus the start."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move forward by `seconds`; raises ValueError when negative."""
        if not seconds >= 0.0:  # also refuses NaN, which would freeze every comparison after it
            raise ValueError(f"a clock cannot go back: advance({seconds})")
        self._now += seconds

    def advance_to(self, when: float) -> None:
        """Move to `when`; a time that is already past leaves the clock as it is."""
        self._now = max(self._now, when)
