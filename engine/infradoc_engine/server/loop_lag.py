"""How late the main event loop runs: a 10 ms ticker, observed into a histogram."""

from __future__ import annotations

import asyncio
import time

from infradoc_engine.metrics import EngineMetrics

TICK_SECONDS = 0.010


class LoopLag:
    """Ticks on the loop that started it; `trouble` may be asked from any thread."""

    def __init__(self, metrics: EngineMetrics) -> None:
        self._metrics = metrics
        self._handle: asyncio.TimerHandle | None = None
        self._due = time.monotonic()

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._schedule()

    def _schedule(self) -> None:
        self._due = time.monotonic() + TICK_SECONDS
        self._handle = self._loop.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._metrics.loop_lag.observe(max(0.0, time.monotonic() - self._due), "api")
        self._schedule()

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def trouble(self, patience: float) -> str | None:
        """A sentence when the loop has not run for longer than `patience` seconds: no token reaches a client then."""
        late = time.monotonic() - self._due
        if self._handle is not None and late > patience:
            return f"The event loop has been blocked for {late:.0f} s."
        return None
