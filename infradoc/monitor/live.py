"""Watching a live target for a while: one tick a period, until the time is over or the server proves hopeless."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from infradoc.monitor.attach import Target
from infradoc.monitor.loop import Monitor
from infradoc.sources.metrics_page import MetricsPageSource

# A server that has answered nothing useful this often in a row will not do so in the rest of the window.
HOPELESS_LOOKS = 3
# Faults that a second look cannot mend.
_FINAL = frozenset(
    {"auth", "html", "json", "unknown", "foreign", "redirect", "tls", "url", "huge", "credentials", "missing"}
)


def watch(
    monitor: Monitor,
    seconds: float,
    progress: Callable[[int], None] | None = None,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """Tick once a period for `seconds`; returns how long it really took.

    `progress` gets the number of findings after each tick. A slow look is not made up for by a burst of looks, because
    rates need even distances.
    """
    with _calm_collector():
        start = due = clock()
        while True:
            tick = monitor.tick(clock())
            if monitor.log.count == 1:
                gc.collect()
                gc.freeze()  # what the first tick has read (catalog, maps, expressions) stays: never walk it again
            if progress is not None:
                progress(len(tick.findings))
            due += monitor.target.store.period
            if due > start + seconds or hopeless(monitor.target, monitor.log.count):
                return clock() - start
            due = max(due, clock())
            sleep(max(0.0, due - clock()))


@contextmanager
def _calm_collector() -> Iterator[None]:
    """Fewer runs of the garbage collector: it took an eighth of a tick, which makes thousands of objects, no cycles."""
    before = gc.get_threshold()
    gc.set_threshold(20_000, 20, 20)
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def hopeless(target: Target, looks: int) -> bool:
    """Whether the server never gave a page and will not: a final fault, or several failures in a row."""
    page = target.source("metrics")
    if not isinstance(page, MetricsPageSource) or "metrics" in target.store.sources:
        return False
    return page.failed_kind in _FINAL or looks >= HOPELESS_LOOKS
