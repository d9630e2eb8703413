"""Drains the outbox: a thread with an event loop, a worker per sink, so that a slow receiver holds up only itself."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from infradoc.alerts.attempt import attempt, result_of
from infradoc.alerts.backoff import Pace
from infradoc.alerts.clean import clean_text
from infradoc.alerts.database import Database, StoreError
from infradoc.alerts.outbox import Outbox, Result, Row, SinkState
from infradoc.alerts.post import Poster
from infradoc.alerts.sinks.base import Sink

PRUNE_SECONDS = 600.0
CLOCK_SECONDS = 2.0  # how often the wall clock is compared with the one that nobody can set
SET_BACK = 5.0  # seconds that count as set back
RECORD_AGAIN = 0.5  # seconds until results that could not be stored are tried again


class Deliverer:
    """Start it, wake it when there is something new, stop it."""

    def __init__(
        self,
        folder: Path,
        sinks: Sequence[Sink],
        *,
        pace: Pace | None = None,
        keep: float = 7 * 86_400.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self.sinks = sinks
        self.pace = pace or Pace()
        self.keep = keep
        self.clock = clock
        self.chance = random.Random()
        self.damaged = False  # the database was seen to be so; whoever mends it takes this back
        self._write_trouble = ""
        self._read_trouble = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bells: list[asyncio.Event] = []
        self._stop_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="alerts-deliver", daemon=True)
        self._ready = threading.Event()
        self._fault: BaseException | None = None
        self._opened: Database | None = None

    def open(self) -> None:
        """Open the database. Raises StoreError."""
        self._opened = Database(self.folder)

    def start(self) -> None:
        """Begin, after opening the database where `open` was not called. Raises StoreError."""
        if self._opened is None:
            self.open()
        self._thread.start()
        self._ready.wait()
        if self._fault is not None:
            raise self._fault

    @property
    def trouble(self) -> str:
        """One sentence while the database cannot be used; "" when all is well."""
        return self._write_trouble or self._read_trouble

    def wake(self) -> None:
        """There is something new in the outbox."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(self._ring)
            except RuntimeError:
                return  # it closed this very moment; what is queued is sent by the next process

    def stop(self, drain: float = 5.0) -> None:
        """Send what is due for at most `drain` seconds more, then end. What is left waits on disk."""
        self._stop_at = time.monotonic() + drain
        self.wake()
        if self._thread.is_alive():
            self._thread.join(drain + 10.0)
        elif self._opened is not None:
            self._opened.close()  # it was never started, or has ended

    def _ring(self) -> None:
        for bell in self._bells:
            bell.set()

    def _run(self) -> None:
        assert self._opened is not None
        self._outbox = Outbox(self._opened)
        try:
            asyncio.run(self._main())
        except Exception as error:  # no event loop without free files, say: whoever waits for the start hears of it
            self._read_trouble = f"Messages are not sent: {type(error).__name__}: {clean_text(str(error), 200)}"
            self._fault = StoreError(self._read_trouble, "They wait on disk for the next start.")
        finally:
            self._ready.set()
            self._opened.close()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._results: asyncio.Queue[tuple[Result, _Worker]] = asyncio.Queue()
        workers = [_Worker(self, sink) for sink in self.sinks]
        self._bells = [worker.bell for worker in workers]
        recorder = asyncio.create_task(self._record())
        keeper = asyncio.create_task(self._prune())
        watch = asyncio.create_task(self._mind_the_clock())
        self._ready.set()
        while not workers and self._stop_at is None:
            await asyncio.sleep(0.1)
        await asyncio.gather(*(worker.serve() for worker in workers))
        await asyncio.sleep(0)
        end = time.monotonic() + 2.0
        while not self._results.empty() and time.monotonic() < end:
            await asyncio.sleep(0.02)
        recorder.cancel()
        keeper.cancel()
        watch.cancel()
        for worker in workers:
            await worker.poster.close()

    def closing(self) -> bool:
        """Whether the time to drain is over."""
        return self._stop_at is not None and time.monotonic() >= self._stop_at

    def stopping(self) -> bool:
        """Whether somebody asked to stop."""
        return self._stop_at is not None

    def guarded(self, call: Callable[[], float]) -> float:
        """`call`, whose database may fail: then the sentence is kept, and it is tried again a moment later."""
        try:
            wait = call()
        except StoreError as error:
            self._read_trouble = self._told(error)
            return self.pace.idle
        except Exception as error:  # one sink's fault must not end the others' deliveries
            self._read_trouble = f"Internal error: {type(error).__name__}: {clean_text(str(error), 200)}"
            return self.pace.idle
        self._read_trouble = ""
        return wait

    def _told(self, error: StoreError) -> str:
        self.damaged = self.damaged or error.damaged
        return str(error)

    def settled(self, result: Result, worker: _Worker) -> None:
        """A worker has something to be noted."""
        self._results.put_nowait((result, worker))

    async def _record(self) -> None:
        """Note results, as many as there are in one commit; a lane is free only after its commit.

        While the disk is full the results stay here, so nothing that was delivered is sent again.
        """
        while True:
            batch = [await self._results.get()]
            while not self._results.empty():
                batch.append(self._results.get_nowait())
            while True:
                try:
                    self._outbox.settle([result for result, _ in batch])
                    break
                except StoreError as error:
                    self._write_trouble = self._told(error)
                    await asyncio.sleep(RECORD_AGAIN)
            self._write_trouble = ""
            for result, worker in batch:
                worker.free(result.row.lane)

    async def _mind_the_clock(self) -> None:
        """A clock that is set back by a day must not put every retry off by a day."""
        ahead = self.clock() - time.monotonic()
        while True:
            await asyncio.sleep(CLOCK_SECONDS)
            now = self.clock()
            moved = now - time.monotonic() - ahead
            if moved < -SET_BACK:
                try:
                    self._outbox.move(moved, now)
                except StoreError as error:
                    self._write_trouble = self._told(error)
                    continue
                self._ring()
            ahead += moved

    async def _prune(self) -> None:
        while True:
            try:
                self._outbox.prune(self.clock(), self.keep)
                self._outbox.expire(self.clock())
                self._write_trouble = ""
            except StoreError as error:
                self._write_trouble = self._told(error)
            await asyncio.sleep(PRUNE_SECONDS)


class _Worker:
    """One sink: takes the heads of its lanes, as many at once as the sink bears."""

    def __init__(self, deliverer: Deliverer, sink: Sink) -> None:
        self._of = deliverer
        self._sink = sink
        self._busy: dict[str, asyncio.Task[None]] = {}
        self.poster = Poster(sink.config)
        self.bell = asyncio.Event()

    async def serve(self) -> None:
        """Until the deliverer stops and, in its time to drain, nothing more is due."""
        while not self._of.closing():
            self.bell.clear()
            wait = self._of.guarded(self._launch)
            if self._of.stopping() and not self._busy and wait > 0:
                break
            try:
                async with asyncio.timeout(min(max(wait, 0.001), self._of.pace.idle)):
                    await self.bell.wait()
            except TimeoutError:
                continue
        tasks = list(self._busy.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _launch(self) -> float:
        """Begin what may begin now; the seconds until there may be more."""
        of, name = self._of, self._sink.name
        state, now = of._outbox.state(name), of.clock()
        if state.disabled:
            return of.pace.idle
        hold = max(state.blocked_until, state.open_until) - now
        if hold > 0:
            return hold
        width = 1 if state.failures >= of.pace.trips else self._sink.width
        rows = of._outbox.heads(name, now, max(0, width - len(self._busy)), self._busy)
        allowed, wait = of._outbox.take_tokens(name, self._sink.rate, now, len(rows))
        for row in rows[:allowed]:
            self._busy[row.lane] = asyncio.create_task(self._send(row))
        return wait or of.pace.idle

    async def _send(self, row: Row) -> None:
        of = self._of
        outcome = await attempt(self._sink, self.poster, row.body, of.clock())
        now = of.clock()
        try:
            state = of._outbox.state(row.sink)
        except StoreError as error:
            of._read_trouble = of._told(error)
            state = SinkState()  # only the breaker's count is not known then; what was delivered stays delivered
        of.settled(result_of(row, outcome, now, state, of.pace, of.chance), self)

    def free(self, lane: str) -> None:
        """The result of this lane's message is on disk."""
        self._busy.pop(lane, None)
        self.bell.set()
