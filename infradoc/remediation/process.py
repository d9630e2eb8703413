"""Which run of the server this is: what infradoc changed in a process that has ended is gone with it."""

from __future__ import annotations

import math

from infradoc_rules.model import SignalFrame

NAME = "proc_start_time_seconds"
# The page and the host tell the same start to about a second: both know it in whole ticks or seconds.
SAME_SECONDS = 2.0


def started_at(frame: SignalFrame) -> float | None:
    """When the server's API process began (Unix seconds of its clock); None where nothing tells it now.

    Of several processes the oldest: workers come and go while the server stays.
    """
    newest: list[tuple[bool, float]] = []
    for series in frame.select(NAME):
        value = float(series.values[-1]) if len(series.values) else math.nan
        if math.isfinite(value):  # a stale marker: that process is no more
            newest.append((series.labels.get("role") == "api", value))
    told = [value for is_api, value in newest if is_api] or [value for _, value in newest]
    return min(told, default=None)


def is_same(one: float | None, other: float | None) -> bool:
    """Whether two starts may be those of one process; unknown ones may."""
    return one is None or other is None or abs(one - other) <= SAME_SECONDS


__all__ = ["NAME", "SAME_SECONDS", "is_same", "started_at"]
