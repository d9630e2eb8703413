"""The step loop: schedule, execute, update, deliver, in a thread of its own; commands run between two steps."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from infradoc_engine.core.errors import BlocksLeaked, RequestTooLong
from infradoc_engine.core.kv_cache_manager import leak_text
from infradoc_engine.core.request import FinishReason
from infradoc_engine.core.scheduler.output import ScheduleOutput
from infradoc_engine.jobs import Deliver, EngineFailure, EngineStopped, ErrorKind, Job, TokenEvent
from infradoc_engine.metrics import EngineMetrics
from infradoc_engine.refusals import is_out_of_memory

if TYPE_CHECKING:
    from infradoc_engine.core.kv_cache_manager import KVCacheManager
    from infradoc_engine.core.scheduler.scheduler import Scheduler
    from infradoc_engine.sampler import Sampled, SamplingParams

T = TypeVar("T")

FAILING_STEPS = 3  # so many failed steps in a row mean that tokens do not move, whatever else still answers


class Runner(Protocol):
    """What the loop needs of a model runner; the tests drive the loop with one that has no torch.

    All but `execute` and `release` are called between two steps; those that change memory raise MemoryError.
    """

    @property
    def num_blocks(self) -> int: ...
    @property
    def num_host_blocks(self) -> int: ...

    @property
    def block_size(self) -> int: ...

    def execute(self, output: ScheduleOutput, params: Mapping[str, SamplingParams]) -> dict[str, Sampled]: ...
    def release(self, request_id: str) -> None: ...
    def grow_kv(self, num_blocks: int) -> None: ...
    def shrink_kv(self, num_blocks: int) -> None: ...
    def move_blocks(self, moves: Sequence[tuple[int, int]]) -> None: ...
    def rebuild_kv(self, block_size: int, num_blocks: int) -> None: ...
    def set_host_blocks(self, num_blocks: int) -> None: ...


class Engine:
    """Owns scheduler, cache and runner: only its thread changes them, but for the pause of admission.

    `lock` is held while the scheduler plans or updates, never while the model computes: other threads take it to read a
    consistent state within milliseconds, even during a long step.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        cache: KVCacheManager,
        runner: Runner,
        *,
        deliver: Deliver,
        metrics: EngineMetrics,
        log: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.scheduler = scheduler
        self.cache = cache
        self.runner = runner
        self.lock = threading.Lock()
        self.jobs: dict[str, Job] = {}
        self.last_step_unix: float | None = None
        self.failure: str | None = None  # why the loop ended, if it did of itself
        self.oom_steps = 0  # steps that the allocator refused
        self.before_step: list[Callable[[], None]] = []  # on the engine thread, without the lock: for faults
        self._deliver = deliver
        self._metrics = metrics
        self._log = log
        self._wake = threading.Condition()
        self._commands: deque[Callable[[], None]] = deque()
        self._pending: dict[str, Job] = {}  # handed in, not yet with the scheduler
        self._calls: set[Future[Any]] = set()
        self._stopping = False
        self._ended = False
        self._failed_in_a_row = 0
        self._failure_kind: ErrorKind = "internal"
        self._step_began: float | None = None
        self._progress = time.monotonic()  # last finished step, or when work arrived after an idle time
        self._thread = threading.Thread(target=self._main, name="engine", daemon=True)

    # --- from any thread ---

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """End the loop after the present step; waits up to `timeout` seconds."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def submit(self, job: Job) -> None:
        """Hand in a request; a refusal comes back as an event."""
        with self._wake:
            if not self._ended:
                if not self.has_work:  # the loop slept: its patience begins with this request
                    self._progress = time.monotonic()
                self._pending[job.request.request_id] = job
                self._commands.append(lambda: self._add(job))
                self._wake.notify()
                return
        failure = EngineFailure(self._failure_kind, str(self.ended))
        self._deliver([TokenEvent(job.request.request_id, None, "error", time.monotonic(), failure)])

    def abort(self, request_id: str) -> None:
        """Drop a request and free its blocks; nothing happens when it is gone already."""
        self._post(lambda: self._end(request_id, "abort"))

    def finish(self, request_id: str) -> None:
        """End a request whose text reached a stop string."""
        self._post(lambda: self._end(request_id, "stop"))

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` between two steps on the engine thread; the future holds its result or exception.

        When no step will run any more the exception is EngineStopped. A future that is cancelled before its turn never
        runs.
        """
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function())
            except EngineStopped as error:
                self._note_failure(str(error), error.kind)  # first: who gets the exception may ask `trouble` at once
                future.set_exception(error)
                raise
            except Exception as error:  # belongs to the caller
                future.set_exception(error)

        with self._wake:
            if self._ended:
                future.set_exception(self._stopped())
                return future
            self._calls.add(future)
            future.add_done_callback(self._calls.discard)
            self._commands.append(run)
            self._wake.notify()
        return future

    @property
    def ended(self) -> str | None:
        """Why no step will run any more, in one sentence; None while the loop goes on."""
        if self.failure is not None:
            return f"The engine stopped: {self.failure.rstrip('.')}."
        return "The engine is not running." if self._ended else None

    def check_going(self) -> None:
        """Raises EngineStopped when no step will run any more."""
        if self.ended is not None:
            raise self._stopped()

    def pause(self) -> None:
        """Admit nothing from the next step on; a step that stands still does not hold this up."""
        with self.lock:
            self.scheduler.pause()

    def resume(self) -> None:
        """Admit again from the next step on."""
        with self.lock:
            self.scheduler.resume()

    @property
    def step_seconds(self) -> float | None:
        """How long the present step has run; None between two steps."""
        began = self._step_began
        return None if began is None else time.monotonic() - began

    @property
    def draining(self) -> bool:
        """Whether no request is admitted at present; new ones queue."""
        return self.scheduler.paused

    @property
    def num_running(self) -> int:
        return self.scheduler.num_running

    @property
    def num_waiting(self) -> int:
        return self.scheduler.num_waiting + len(self._pending)

    @property
    def has_work(self) -> bool:
        return bool(self._pending) or self.scheduler.has_work()

    def trouble(self, patience: float) -> str | None:
        """Why tokens cannot move, in one sentence; None while they can."""
        if self.failure is not None:
            return self.ended
        if not self._thread.is_alive():
            return "The engine thread is not running."
        if self._failed_in_a_row >= FAILING_STEPS:
            return f"The last {self._failed_in_a_row} steps failed; see the server's log."
        with self.lock:  # in the middle of a plan, blocks on their way into a table look leaked
            if self.cache.num_leaked == self.cache.num_blocks:
                return leak_text(self.cache)
        idle = time.monotonic() - self._progress
        if self.has_work and idle > patience:
            return f"There is work, but no step has finished for {idle:.0f} s."
        return None

    # --- on the engine thread ---

    def _post(self, command: Callable[[], None]) -> None:
        with self._wake:
            self._commands.append(command)
            self._wake.notify()

    def _main(self) -> None:
        try:
            while self._wait_for_work():
                self._run_commands()
                if self.scheduler.has_work():
                    self._step_began = time.monotonic()
                    self._step()
                    self._step_began = None
        except EngineStopped as error:  # already noted when a command raised it
            self._note_failure(str(error), error.kind)
        except Exception as error:  # a fault of the engine itself: say so, fail what is in flight, stay visible
            first_line = (str(error).splitlines() or [""])[0]
            self._note_failure(f"{type(error).__name__}: {first_line}; restart the server.", "internal")
        if self.failure is not None:
            self._log(f"engine loop ended: {self.failure}")
        self._close()

    def _note_failure(self, why: str, kind: ErrorKind) -> None:
        self.failure, self._failure_kind = why, kind

    def _stopped(self) -> EngineStopped:
        return EngineStopped(self.ended or "The engine is not running.", self._failure_kind)

    def _close(self) -> None:
        """No step will follow: fail what is in flight and whatever waits for the thread."""
        with self._wake:
            self._ended = True
            self._commands.clear()
            calls = list(self._calls)
            self.jobs |= self._pending  # their `_add` was among the commands
            self._pending = {}
        if self.failure is not None:
            failure = EngineFailure(self._failure_kind, str(self.ended))
        else:
            failure = EngineFailure("shutdown", "The server is shutting down.")
        self._fail(list(self.jobs), failure, free=False)
        for future in calls:
            # Asked and claimed at once: whoever waits may cancel it at any time.
            if not future.done() and future.set_running_or_notify_cancel():
                future.set_exception(self._stopped())

    def _wait_for_work(self) -> bool:
        with self._wake:
            if not self._commands and not self.scheduler.has_work():
                while not self._commands and not self._stopping:
                    self._wake.wait()
                self._progress = time.monotonic()
            return not self._stopping

    def _run_commands(self) -> None:
        while self._commands:
            self._commands.popleft()()

    def _add(self, job: Job) -> None:
        request_id = job.request.request_id
        self.jobs[request_id] = job
        try:
            with self.lock:
                self.scheduler.add(job.request)
        except ValueError as error:  # too long, or malformed: the request's fault, never the loop's
            kind: ErrorKind = "length" if isinstance(error, RequestTooLong) else "internal"
            self._fail([request_id], EngineFailure(kind, str(error)), free=False)
        except BlocksLeaked as error:  # neither's fault: it fits again once the blocks are back
            self._fail([request_id], EngineFailure("memory", str(error)), free=False)
        finally:
            with self._wake:
                del self._pending[request_id]

    def _end(self, request_id: str, reason: Literal["abort", "stop"]) -> None:
        job = self.jobs.pop(request_id, None)
        if job is None:
            return
        with self.lock:
            if reason == "abort":
                self.scheduler.abort(request_id)
            else:
                self.scheduler.finish(request_id, reason)
        job.ledger.engine_done(time.monotonic())
        self.runner.release(request_id)

    def _step(self) -> None:
        for hook in self.before_step:
            hook()
        start = time.monotonic()
        with self.lock:
            output = self.scheduler.schedule()
        self._mark_planned(output)
        self._report_stuck(output)
        if not output.needs_runner:
            if not output.preempted and not output.finished:  # either has freed blocks: plan again at once
                self._wait_for_change()
            return
        params = {s.request_id: self.jobs[s.request_id].sampling for s in output.scheduled}
        try:
            sampled = self.runner.execute(output, params)
        except Exception as error:  # of whatever kind: the loop goes on, and `trouble` tells when it goes on failing
            self._fail_step(output, error)
            return
        with self.lock:
            update = self.scheduler.update(output, {name: token.token_id for name, token in sampled.items()})
        end = time.monotonic()
        self._note_step(output, end - start, end)
        self._deliver([self._token_event(name, sampled[name], reason, end) for name, _, reason in update.tokens])

    def _wait_for_change(self) -> None:
        """Nothing fits although there is work: only a command or the passing of a lease can change that."""
        if self.draining:  # waiting is what was asked for: no reason to call the engine stuck
            self._progress = time.monotonic()
        with self._wake:
            if not self._commands and not self._stopping:
                self._wake.wait(0.05)

    def _mark_planned(self, output: ScheduleOutput) -> None:
        now = time.monotonic()
        for name, preemption in output.preempted:
            self.jobs[name].ledger.preempted(preemption.time)
        for name in output.admitted:
            self.jobs[name].ledger.admitted(now)

    def _report_stuck(self, output: ScheduleOutput) -> None:
        """Requests that outgrew the whole pool: what they have is their answer; with nothing, it is an error."""
        if not output.finished:
            return
        now = time.monotonic()
        events: list[TokenEvent] = []
        for name, reason in output.finished:
            job = self.jobs.pop(name)
            job.ledger.engine_done(now)
            self.runner.release(name)
            failure = self._no_room() if reason == "error" else None
            events.append(TokenEvent(name, None, reason, now, failure))
        self._deliver(events)

    def _no_room(self) -> EngineFailure:
        if self.cache.num_leaked:
            return EngineFailure("memory", leak_text(self.cache))
        tokens = self.cache.num_blocks * self.cache.block_size
        return EngineFailure("length", f"The KV pool of {tokens} tokens cannot hold this request.")

    def _token_event(self, name: str, token: Sampled, reason: FinishReason | None, now: float) -> TokenEvent:
        job = self.jobs[name]
        job.ledger.token(now)
        if reason is not None:
            job.ledger.engine_done(now)
            del self.jobs[name]
            self.runner.release(name)
        return TokenEvent(name, token, reason, now)

    def _note_step(self, output: ScheduleOutput, seconds: float, now: float) -> None:
        prefill, decode = output.num_prefill_tokens, output.num_decode_tokens
        phase = "mixed" if prefill and decode else ("prefill" if prefill else "decode")
        if prefill + decode:  # a step that only swapped has no phase
            self._metrics.step_seconds.observe(seconds, phase)
            self._metrics.step_tokens.observe(prefill + decode)
        self._progress = now
        self.last_step_unix = time.time()
        self._failed_in_a_row = 0

    def _fail_step(self, output: ScheduleOutput, error: Exception) -> None:
        """The requests of a step that could not be computed end with an error; the others go on."""
        memory = is_out_of_memory(error)
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        self._log(f"a step of {len(output.scheduled)} requests failed: {type(error).__name__}: {first_line}")
        self._failed_in_a_row += 1
        self.oom_steps += memory
        with self.lock:
            self.scheduler.abandon_step()
        if memory:
            failure = EngineFailure("memory", f"The engine ran out of memory. {first_line}")
        else:
            failure = EngineFailure("internal", f"The step failed: {first_line}")
        self._fail([s.request_id for s in output.scheduled], failure, free=True)

    def _fail(self, names: Sequence[str], failure: EngineFailure, *, free: bool) -> None:
        now = time.monotonic()
        events: list[TokenEvent] = []
        for name in names:
            job = self.jobs.pop(name, None)
            if job is None:
                continue
            if free:
                with self.lock:
                    self.scheduler.finish(name, "error")
                self.runner.release(name)
            job.ledger.engine_done(now)
            events.append(TokenEvent(name, None, "error", now, failure))
        self._deliver(events)
