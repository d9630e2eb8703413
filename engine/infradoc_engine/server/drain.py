"""A drain: admission stops, what runs may finish for a while, the rest waits to be computed again, a change is made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from infradoc_engine.engine import Engine

T = TypeVar("T")

_POLL_SECONDS = 0.02
_LEAST_PATIENCE = 1.0  # also where a step has outlasted all patience already: it may end at this very moment


class StepRunning(RuntimeError):
    """The step under way does not end, so what was to be done between two steps will never be; one sentence."""


class Drainer:
    """Used on the control loop alone. `held`: an operator asked for the pause and ends it.

    `patience`: the seconds that a step may run before whoever waits for its end gives up.
    """

    def __init__(self, engine: Engine, seconds: float, patience: float) -> None:
        self._engine = engine
        self._patience = patience
        self.seconds = seconds
        self.held = False

    async def call(self, function: Callable[[], T]) -> T:
        """Run `function` between two steps. Raises what it raises, and EngineStopped when no step will run any more.

        StepRunning when the present step outlasts the patience: `function` will then never run.
        """
        future = self._engine.call(function)
        waiting = asyncio.wrap_future(future)
        patience = max(_LEAST_PATIENCE, self._patience - (self._engine.step_seconds or 0.0))
        try:
            await asyncio.wait({waiting}, timeout=patience)
        except asyncio.CancelledError:
            future.cancel()
            raise
        if not waiting.done() and future.cancel():
            raise StepRunning(self._overdue(patience))
        return await waiting  # done, or begun: then its end is near

    def _overdue(self, waited: float) -> str:
        seconds = self._engine.step_seconds
        if seconds is None:
            return f"The engine came to no change within {waited:.0f} s; try again later."
        return f"No change can be made: a step has run for {seconds:.0f} s; try again when it has ended."

    async def hold(self, seconds: float | None = None) -> int:
        """Stop admission and wait, for at most `seconds`, until nothing runs; how many requests still do.

        The wait ends when `release` is called. Raises EngineStopped when no step will run any more.
        """
        self._engine.check_going()
        self.held = True
        self._engine.pause()
        return await self._wait(seconds, lambda: not self.held)

    async def release(self) -> None:
        """End the wait of a `hold` under way, behind which `resume` would stand."""
        self.held = False

    async def resume(self) -> None:
        """Admit again. Raises EngineStopped when no step will run any more."""
        self._engine.check_going()
        self.held = False
        self._engine.resume()

    async def around(self, change: Callable[[], T], seconds: float | None = None) -> T:
        """Drain, run `change` on the engine thread, admit again; no request is lost.

        Raises what `change` and `call` raise. What still runs after `seconds` is preempted with the reason "resize".
        """
        engine = self._engine

        def work() -> T:
            with engine.lock:
                engine.scheduler.preempt_all("resize")
            return change()

        engine.pause()
        try:
            await self._wait(seconds)
            return await self.call(work)
        finally:
            if not self.held:
                engine.resume()

    async def _wait(self, seconds: float | None, given_up: Callable[[], bool] = lambda: False) -> int:
        engine, deadline = self._engine, time.monotonic() + (self.seconds if seconds is None else seconds)
        while engine.num_running and engine.ended is None and not given_up() and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
        return engine.num_running
