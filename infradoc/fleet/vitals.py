"""The figures of the resource board: those of a report, and running, waiting and the wait that follows."""

from __future__ import annotations

from collections.abc import Mapping

from infradoc.report.vitals import read_vitals
from infradoc.signals.window import increase, last_total
from infradoc_rules.model import SignalFrame

WINDOW_SECONDS = 60.0


def board_vitals(frame: SignalFrame, seconds: float = WINDOW_SECONDS) -> dict[str, float | None]:
    """Vitals of report v1 over the last `seconds`, with `running`, `waiting` and `estimated_wait_seconds`."""
    values: dict[str, float | None] = dict(read_vitals(frame, seconds).values)
    values["running"] = last_total(frame, "llm_requests_running")
    values["waiting"] = last_total(frame, "llm_requests_waiting")
    values["estimated_wait_seconds"] = estimated_wait(frame, values, seconds)
    return values


def estimated_wait(frame: SignalFrame, values: Mapping[str, float | None], seconds: float) -> float | None:
    """Seconds that a request which comes now waits: the queue before it over the rate at which requests leave.

    Little's law for a queue that is served in order. None when nothing left in the time: it cannot be told then.
    """
    waiting = values.get("waiting")
    if waiting is None:
        return None
    if waiting <= 0:
        return 0.0
    start = max(frame.now - seconds, _first_time(frame))
    done = sum(increase(series, start, frame.now) for series in frame.select("llm_requests_finished_total"))
    span = frame.now - start
    return waiting * span / done if done > 0 and span > 0 else None


def _first_time(frame: SignalFrame) -> float:
    return min((float(one.times[0]) for one in frame.select("llm_requests_finished_total")), default=frame.now)
