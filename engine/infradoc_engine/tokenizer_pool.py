"""Text to token ids: on the event loop (0 workers, or a short text) or in worker processes, switched in flight."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from infradoc_engine.tokenizer_process import WorkerProcess
from infradoc_engine.tokenizer_worker import render_ids, unpack_ids

# Up to here the loop encodes by itself also when there are workers: it takes at most 3 ms, less than the trip to a
# worker that is busy with a long document, behind which a short prompt would have to wait.
SHORT_BYTES = 8192
START_SECONDS = 60.0  # a worker starts in 0.34 s alone; on a host with every core busy it takes many times that


class TokenizeError(RuntimeError):
    """A text could not be encoded; one sentence."""


class Encoder(Protocol):
    """What runs on the loop; `json` is the same tokenizer, serialised for the workers."""

    @property
    def json(self) -> str: ...

    def encode(self, text: str, add_special: bool = True) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class Encoded:
    """One text, encoded once. Exactly one of `ids` and `rendered` (a JSON array) is set, as asked for.

    `start` and `end` are monotonic seconds of the encode alone (the clock is the same in every process of the host).
    """

    count: int
    start: float
    end: float
    ids: list[int] | None = None
    rendered: bytes | None = None


@dataclass(slots=True, eq=False)
class _Job:
    text: bytes
    add_special: bool
    render: bool
    done: asyncio.Future[Encoded]
    attempts: int = 0


@dataclass(slots=True, eq=False)
class _Worker:
    process: WorkerProcess
    retired: bool = False  # takes no more than what would otherwise be lost
    task: asyncio.Task[None] | None = None


class TokenizerPool:
    """All methods run on the event loop that made the pool."""

    def __init__(self, encoder: Encoder, *, log: Callable[[str], None] = lambda text: None) -> None:
        self._encoder = encoder
        self._log = log
        self._workers: list[_Worker] = []
        self._jobs: deque[_Job] = deque()
        self._waiters: list[asyncio.Future[None]] = []
        self._resizing = asyncio.Lock()
        self._wanted = 0
        self._closing = False

    @property
    def num_workers(self) -> int:
        return sum(not worker.retired for worker in self._workers)

    @property
    def pids(self) -> list[int]:
        return [worker.process.pid for worker in self._workers if not worker.process.gone]

    @property
    def num_waiting(self) -> int:
        """Texts that wait for a worker; on the event loop they wait in its ready queue, where nobody can count them."""
        return len(self._jobs)

    async def encode(self, text: str, *, add_special: bool = True, render: bool = False) -> Encoded:
        """Encode `text` once; raises TokenizeError when it cannot be encoded or its worker died twice."""
        try:
            payload = text.encode()
        except UnicodeEncodeError:
            raise TokenizeError("The text holds a lone surrogate, which is not valid Unicode.") from None
        if self.num_workers == 0 or len(payload) <= SHORT_BYTES:
            return self._encode_here(text, add_special, render)
        job = _Job(payload, add_special, render, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self._wake()
        return await job.done

    def _encode_here(self, text: str, add_special: bool, render: bool) -> Encoded:
        start = time.monotonic()
        try:
            ids = self._encoder.encode(text, add_special)
        except Exception as error:
            raise TokenizeError(f"The text cannot be tokenized: {error}") from error
        end = time.monotonic()
        if render:
            return Encoded(len(ids), start, end, rendered=render_ids(ids))
        return Encoded(len(ids), start, end, ids=ids)

    async def resize(self, workers: int) -> None:
        """Have `workers` processes; returns when they are ready.

        Texts that are with a worker, or wait for one, when the number falls are still answered by it: a retired worker
        ends only when nothing waits or another one is there. Raises TokenizeError when a worker does not start.
        """
        async with self._resizing:
            before, self._wanted = self._wanted, workers
            started = await asyncio.gather(
                *(self._start() for _ in range(workers - self.num_workers)), return_exceptions=True
            )
            failed = [result for result in started if isinstance(result, BaseException)]
            fresh = [worker for worker in started if isinstance(worker, _Worker)]
            if failed:  # all or nothing: who asked is told that the number stays as it was
                self._wanted = before
                await asyncio.gather(*(worker.process.end() for worker in fresh))
                raise TokenizeError(f"A tokenizer worker did not start: {failed[0]}")
            for worker in fresh:
                self._serve(worker)
            for worker in [w for w in self._workers if not w.retired][workers:]:
                worker.retired = True
            self._wake()

    async def close(self) -> None:
        """End every worker; texts that still wait fail."""
        self._closing = True
        self._wanted = 0
        for job in self._jobs:
            if not job.done.done():
                job.done.set_exception(TokenizeError("The server is shutting down."))
        self._jobs.clear()
        workers = list(self._workers)
        for worker in workers:
            worker.retired = True
            worker.process.kill()
        self._wake()
        await asyncio.gather(*(worker.task for worker in workers if worker.task is not None), return_exceptions=True)

    async def _start(self) -> _Worker:
        try:
            return _Worker(await WorkerProcess.start(self._encoder.json, self._wake, START_SECONDS))
        except (OSError, TimeoutError) as error:
            raise TokenizeError(str(error) or f"no answer within {START_SECONDS:.0f} s") from None

    def _serve(self, worker: _Worker) -> None:
        self._workers.append(worker)
        worker.task = asyncio.create_task(self._run(worker))

    def _wake(self) -> None:
        """Let every idle worker look again. They are few and this is cheap; a lost wake-up would be a lost text."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _next_job(self, worker: _Worker) -> _Job | None:
        """The next job for this worker; None when it is to end, ConnectionResetError when it has ended."""
        while True:
            if worker.process.gone:
                raise ConnectionResetError
            if worker.retired and (self._closing or not self._stranded()):
                return None
            while self._jobs:
                job = self._jobs.popleft()
                if not job.done.done():  # the client may have gone meanwhile
                    return job
            if not worker.retired:
                waiter = asyncio.get_running_loop().create_future()
                self._waiters.append(waiter)
                await waiter

    async def _run(self, worker: _Worker) -> None:
        job: _Job | None = None
        try:
            while (job := await self._next_job(worker)) is not None:
                head = {"add_special": job.add_special, "render": job.render}
                self._settle(job, *await worker.process.ask(head, job.text))
                job = None
        except ConnectionResetError:
            await self._lost(worker, job)
        finally:
            self._workers.remove(worker)
            await worker.process.end()

    @staticmethod
    def _settle(job: _Job, head: dict[str, object], payload: bytes) -> None:
        if job.done.done():
            return
        if "error" in head:
            job.done.set_exception(TokenizeError(f"The text cannot be tokenized: {head['error']}"))
            return
        count, start, end = int(str(head["count"])), float(str(head["start"])), float(str(head["end"]))
        if job.render:
            job.done.set_result(Encoded(count, start, end, rendered=payload))
        else:
            job.done.set_result(Encoded(count, start, end, ids=unpack_ids(payload)))

    async def _lost(self, worker: _Worker, job: _Job | None) -> None:
        """A worker died: its text goes to the head of the queue once more, and a new worker takes its place."""
        if job is not None and not job.done.done():
            job.attempts += 1
            if job.attempts < 2 and not self._closing:
                self._jobs.appendleft(job)
            else:
                job.done.set_exception(TokenizeError("The tokenizer process ended twice on this text."))
        worker.retired = True
        self._wake()
        if self._closing or (self.num_workers >= self._wanted and not self._stranded()):
            return
        self._log(f"tokenizer worker {worker.process.pid} ended unexpectedly; starting another")
        try:
            replacement = await self._start()
        except TokenizeError as error:
            self._log(str(error))
            self._fall_back()
            return
        replacement.retired = self.num_workers >= self._wanted  # the number may have been lowered meanwhile
        self._serve(replacement)

    def _stranded(self) -> bool:
        return bool(self._jobs) and self.num_workers == 0

    def _fall_back(self) -> None:
        """No worker could be started and none is left: what waits is encoded on the event loop."""
        if self.num_workers > 0:
            return
        while self._jobs:
            job = self._jobs.popleft()
            if job.done.done():
                continue
            try:
                job.done.set_result(self._encode_here(job.text.decode(), job.add_special, job.render))
            except TokenizeError as error:
                job.done.set_exception(error)
