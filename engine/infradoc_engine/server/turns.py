"""One change at a time, on the control loop; whoever waits for a turn gets an answer in bounded time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from infradoc_engine.jobs import EngineStopped
from infradoc_engine.server.drain import StepRunning
from infradoc_engine.server.errors import ApiError

T = TypeVar("T")

# A drain with a rebuild, or a worker that starts, is over by then; but a drain may also be given an hour.
WAIT_SECONDS = 60.0


async def on_loop(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Await `work` on `loop`, from whichever loop this runs on."""
    if asyncio.get_running_loop() is loop:
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


class Turns:
    """Gives what a change may meet its HTTP form: 503 with the reason."""

    def __init__(self, control_loop: asyncio.AbstractEventLoop, wait_seconds: float = WAIT_SECONDS) -> None:
        self._loop = control_loop
        self._wait_seconds = wait_seconds
        self._lock = asyncio.Lock()
        self._began = 0.0

    async def on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Await what needs no turn on the control loop."""
        return await on_loop(self._loop, work)

    async def take(self, work: Callable[[], Awaitable[T]]) -> T:
        """Await `work()` on the control loop when no other change is under way, from whichever loop this runs on.

        Raises what `work` raises; ApiError 503 for a step that does not end, an engine or a server that ends, and when
        the change before does not.
        """
        try:
            return await on_loop(self._loop, self._locked(work))
        except (EngineStopped, StepRunning) as error:
            raise not_now(error) from None
        except asyncio.CancelledError:  # nothing else ends a change half-way
            raise ApiError(503, "The server is shutting down.", code="draining") from None

    async def _locked(self, work: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._lock.acquire()
        except TimeoutError:
            seconds = time.monotonic() - self._began
            message = f"Nothing was changed: another change has been under way for {seconds:.0f} s; try again later."
            raise ApiError(503, message, code="change_under_way") from None
        try:
            self._began = time.monotonic()
            return await work()
        finally:
            self._lock.release()


def not_now(error: EngineStopped | StepRunning, done: Sequence[str] = ()) -> ApiError:
    """503 for a change that cannot be made between two steps, as there are none; `done` was applied before it."""
    stopped = isinstance(error, EngineStopped)
    outcome = f" Already applied: {', '.join(done)}." if done else "" if stopped else " Nothing was changed."
    return ApiError(503, f"{error}{outcome}", code="engine_stopped" if stopped else "step_running")
