"""A drain: admission stops, what runs may finish for a while, the rest waits to be computed again, a change is made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from infradoc_engine.engine import Engine

T = TypeVar("T")

_POLL_SECONDS = 0.02


class Drainer:
    """Used on the control loop alone. `held`: an operator asked for the pause and ends it."""

    def __init__(self, engine: Engine, seconds: float) -> None:
        self._engine = engine
        self.seconds = seconds
        self.held = False

    async def call(self, function: Callable[[], T]) -> T:
        """Run `function` between two steps. Raises what it raises, RuntimeError when the engine is not running."""
        return await asyncio.wrap_future(self._engine.call(function))

    async def hold(self, seconds: float | None = None) -> int:
        """Stop admission and wait, for at most `seconds`, until nothing runs; how many requests still do.

        The wait ends when `release` is called.
        """
        self.held = True
        await self._pause()
        return await self._wait(seconds, lambda: not self.held)

    async def release(self) -> None:
        """End the wait of a `hold` under way, behind which `resume` would stand."""
        self.held = False

    async def resume(self) -> None:
        """Admit again."""
        self.held = False
        await self.call(self._resume)

    async def around(self, change: Callable[[], T], seconds: float | None = None) -> T:
        """Drain, run `change` on the engine thread, admit again; no request is lost.

        Raises what `change` raises. What still runs after `seconds` is preempted with the reason "resize".
        """
        engine = self._engine

        def work() -> T:
            with engine.lock:
                engine.scheduler.preempt_all("resize")
            return change()

        await self._pause()
        try:
            await self._wait(seconds)
            return await self.call(work)
        finally:
            if not self.held:
                await self.call(self._resume)

    async def _pause(self) -> None:
        def pause() -> None:
            with self._engine.lock:
                self._engine.scheduler.pause()

        await self.call(pause)

    def _resume(self) -> None:
        with self._engine.lock:
            self._engine.scheduler.resume()

    async def _wait(self, seconds: float | None, given_up: Callable[[], bool] = lambda: False) -> int:
        engine, deadline = self._engine, time.monotonic() + (self.seconds if seconds is None else seconds)
        while engine.num_running and engine.failure is None and not given_up() and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
        return engine.num_running
