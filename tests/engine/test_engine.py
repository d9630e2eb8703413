"""The step loop with a runner that computes nothing: delivery, commands, failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from infradoc_engine import pool_changes
from infradoc_engine.core.kv_cache_manager import KVCacheManager
from infradoc_engine.core.request import Request
from infradoc_engine.core.scheduler.limits import SchedulerLimits
from infradoc_engine.core.scheduler.output import ScheduleOutput
from infradoc_engine.core.scheduler.scheduler import Scheduler
from infradoc_engine.engine import Engine
from infradoc_engine.jobs import EngineStopped, Job, TokenEvent
from infradoc_engine.latency import LatencyLedger
from infradoc_engine.memory import PoolLost
from infradoc_engine.metrics import EngineMetrics
from infradoc_engine.sampler import Sampled, SamplingParams


class CountingRunner:
    """Token n of a request is n; `before_step` may raise, or wait, as a real step might."""

    def __init__(self, num_blocks: int) -> None:
        self.before_step: Callable[[ScheduleOutput], None] = lambda output: None
        self.released: list[str] = []
        self.counts: dict[str, int] = {}
        self.calls: list[tuple[str, Any]] = []
        self.num_blocks, self.block_size, self.num_host_blocks = num_blocks, 4, 0
        self.refuse: str | None = None  # the call that fails
        self.error: type[Exception] = MemoryError

    def execute(self, output: ScheduleOutput, params: Mapping[str, SamplingParams]) -> dict[str, Sampled]:
        self.before_step(output)
        sampled = {}
        for scheduled in output.scheduled:
            assert scheduled.request_id in params
            if scheduled.samples:
                token = self.counts[scheduled.request_id] = self.counts.get(scheduled.request_id, 0) + 1
                sampled[scheduled.request_id] = Sampled(token)
        return sampled

    def release(self, request_id: str) -> None:
        self.released.append(request_id)

    def grow_kv(self, num_blocks: int) -> None:
        self._note("grow", num_blocks)
        self.num_blocks = num_blocks

    def shrink_kv(self, num_blocks: int) -> None:
        self._note("shrink", num_blocks)
        self.num_blocks = num_blocks

    def move_blocks(self, moves: Sequence[tuple[int, int]]) -> None:
        if moves:
            self._note("move", list(moves))

    def rebuild_kv(self, block_size: int, num_blocks: int) -> None:
        self._note("rebuild", (block_size, num_blocks))
        self.block_size, self.num_blocks = block_size, num_blocks

    def set_host_blocks(self, num_blocks: int) -> None:
        self._note("host", num_blocks)
        self.num_host_blocks = num_blocks

    def _note(self, name: str, value: Any) -> None:
        if name == self.refuse:
            raise self.error(f"no memory to {name}")
        self.calls.append((name, value))


class Bench:
    """An engine with what it delivered."""

    def __init__(self, num_blocks: int = 64) -> None:
        self.runner = CountingRunner(num_blocks)
        self.cache = KVCacheManager(num_blocks, 4, prefix_caching=False)
        limits = SchedulerLimits(max_num_seqs=4, max_num_batched_tokens=64, max_model_len=128, prefix_caching=False)
        self.events: list[TokenEvent] = []
        self.batches: list[int] = []
        self.changed = threading.Condition()
        self.metrics = EngineMetrics()
        self.log: list[str] = []
        self.engine = Engine(
            Scheduler(limits, self.cache),
            self.cache,
            self.runner,
            deliver=self.deliver,
            metrics=self.metrics,
            log=self.log.append,
        )
        self.ledgers: dict[str, LatencyLedger] = {}

    def deliver(self, events: Sequence[TokenEvent]) -> None:
        with self.changed:
            self.events.extend(events)
            self.batches.append(len(events))
            self.changed.notify_all()

    def submit(self, name: str, prompt: int = 4, max_tokens: int = 3) -> None:
        ledger = self.ledgers[name] = LatencyLedger(time.monotonic)
        ledger.begin("queue", ledger.arrival)
        request = Request(name, list(range(prompt)), max_tokens)
        self.engine.submit(Job(request, SamplingParams(temperature=0.0), ledger))

    def wait(self, done: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(done, 10), self.events

    def ended(self, *names: str) -> Callable[[], bool]:
        return lambda: {e.request_id for e in self.events if e.finish_reason} >= set(names)

    def of(self, name: str) -> list[TokenEvent]:
        return [event for event in self.events if event.request_id == name]


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    made.engine.start()
    yield made
    made.engine.stop()


def test_tokens_come_in_order_and_one_batch_a_step(bench: Bench) -> None:
    gate = threading.Event()
    bench.runner.before_step = lambda output: gate.wait(10) and None
    bench.submit("warm")
    for name in "abc":
        bench.submit(name)
    gate.set()
    bench.wait(bench.ended("warm", "a", "b", "c"))
    for name in "abc":
        assert [event.token.token_id for event in bench.of(name) if event.token] == [1, 2, 3]
        assert [event.finish_reason for event in bench.of(name)] == [None, None, "length"]
    assert max(bench.batches) >= 3
    assert sorted(bench.runner.released) == ["a", "b", "c", "warm"]
    assert bench.engine.jobs == {}
    assert bench.metrics.step_tokens.total()[0] == len(bench.batches)


def test_allocation_failure_ends_the_step_s_requests_and_no_others(bench: Bench) -> None:
    def refuse_long(output: ScheduleOutput) -> None:
        if any(len(s.token_ids) > 50 for s in output.scheduled):
            raise MemoryError("no memory for a step of 60 tokens")

    bench.runner.before_step = refuse_long
    bench.submit("huge", prompt=60)
    bench.wait(bench.ended("huge"))
    (event,) = bench.of("huge")
    assert event.finish_reason == "error" and event.failure is not None
    assert event.failure.kind == "memory" and "no memory" in event.failure.message
    bench.submit("small")
    bench.wait(bench.ended("small"))
    assert bench.of("small")[-1].finish_reason == "length"
    assert bench.engine.trouble(10) is None
    assert bench.engine.oom_steps == 1
    assert bench.engine.scheduler.stats.finished["error"] == 1
    assert bench.cache.ledger().live == 0
    bench.cache.check_integrity()


def test_steps_that_keep_failing_are_trouble_until_one_works(bench: Bench) -> None:
    def refuse(output: ScheduleOutput) -> None:
        raise RuntimeError("the device is gone")

    bench.runner.before_step = refuse
    for name in "abc":
        bench.submit(name)
        bench.wait(bench.ended(name))
    assert "last 3 steps failed" in str(bench.engine.trouble(10))
    bench.runner.before_step = lambda output: None
    bench.submit("d")
    bench.wait(bench.ended("d"))
    assert bench.engine.trouble(10) is None


def test_abort_frees_the_blocks_and_delivers_nothing_more(bench: Bench) -> None:
    started, gate = threading.Event(), threading.Event()

    def hold(output: ScheduleOutput) -> None:
        started.set()
        gate.wait(10)

    bench.runner.before_step = hold
    bench.submit("a", max_tokens=100)
    assert started.wait(10)
    bench.engine.abort("a")
    gate.set()
    bench.engine.call(lambda: None).result(10)
    count = len(bench.events)
    assert bench.cache.ledger().live == 0
    assert not bench.engine.has_work
    assert bench.engine.scheduler.stats.finished["abort"] == 1
    assert len(bench.events) == count
    bench.engine.abort("a")
    bench.engine.abort("never-seen")
    assert bench.engine.call(lambda: 5).result(10) == 5


def test_call_returns_results_and_exceptions(bench: Bench) -> None:
    def fail() -> None:
        raise ValueError("no")

    assert bench.engine.call(threading.current_thread).result(10).name == "engine"
    with pytest.raises(ValueError, match="no"):
        bench.engine.call(fail).result(10)


def test_too_long_comes_back_as_a_failure(bench: Bench) -> None:
    bench.submit("long", prompt=128)
    bench.wait(bench.ended("long"))
    (event,) = bench.of("long")
    assert event.failure is not None and event.failure.kind == "length"
    assert "long" not in bench.engine.jobs


def test_a_stalled_step_is_trouble_and_idleness_is_not(bench: Bench) -> None:
    started, gate = threading.Event(), threading.Event()
    assert bench.engine.trouble(0.0) is None  # no work, however short the patience

    def hold(output: ScheduleOutput) -> None:
        started.set()
        gate.wait(10)

    bench.runner.before_step = hold
    bench.submit("a")
    assert started.wait(10)
    time.sleep(0.02)
    assert "no step has finished" in str(bench.engine.trouble(0.01))
    gate.set()
    bench.wait(bench.ended("a"))
    assert bench.engine.trouble(5.0) is None


def test_a_fault_of_the_loop_fails_what_is_in_flight_and_stays_visible(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise AssertionError("ledger does not add up")

    monkeypatch.setattr(bench.engine.scheduler, "update", broken)
    bench.submit("a")
    bench.wait(bench.ended("a"))
    assert bench.of("a")[0].failure is not None
    bench.engine._thread.join(10)
    assert "ledger does not add up" in str(bench.engine.trouble(10))
    assert any("engine loop ended" in line for line in bench.log)
    with pytest.raises(EngineStopped, match="ledger does not add up"):
        bench.engine.call(lambda: None).result(10)
    bench.submit("b")
    bench.wait(bench.ended("b"))
    assert "ledger does not add up" in str(bench.of("b")[0].failure)


def test_a_fault_of_the_loop_fails_what_was_handed_in_during_its_last_step(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, gate = threading.Event(), threading.Event()

    def hold(output: ScheduleOutput) -> None:
        started.set()
        gate.wait(10)

    def broken(*_: Any) -> None:
        raise AssertionError("ledger does not add up")

    bench.runner.before_step = hold
    monkeypatch.setattr(bench.engine.scheduler, "update", broken)
    bench.submit("a")
    assert started.wait(10)
    bench.submit("b")
    assert bench.engine.num_waiting == 1
    gate.set()
    bench.wait(bench.ended("a", "b"))
    assert [event.failure and event.failure.kind for event in bench.of("b")] == ["internal"]
    assert bench.engine.num_waiting == 0


def test_a_stop_tells_those_in_flight_that_the_server_shuts_down(bench: Bench) -> None:
    started, gate = threading.Event(), threading.Event()

    def hold(output: ScheduleOutput) -> None:
        started.set()
        gate.wait(10)

    bench.runner.before_step = hold
    bench.submit("a", max_tokens=100)
    assert started.wait(10)
    stopping = threading.Thread(target=bench.engine.stop)
    stopping.start()
    gate.set()
    stopping.join(10)
    assert [event.failure.kind for event in bench.of("a") if event.failure] == ["shutdown"]


def test_patience_begins_with_the_request_and_not_with_the_last_step_before_an_idle_time(bench: Bench) -> None:
    bench.engine.call(lambda: None).result(10)
    with bench.engine._wake:  # the loop cannot wake yet
        bench.engine._progress -= 3600
        bench.submit("a")
        assert bench.engine.has_work and bench.engine.trouble(60) is None
    bench.wait(bench.ended("a"))


def test_ledger_spans_cover_preemption() -> None:
    bench = Bench(num_blocks=10)  # 40 tokens for two requests that want 32 each
    bench.engine.start()
    try:
        bench.submit("a", prompt=8, max_tokens=24)
        bench.submit("b", prompt=8, max_tokens=24)
        bench.wait(bench.ended("a", "b"))
        assert bench.engine.scheduler.stats.preemptions["kv_full"] > 0
        victim = bench.ledgers["b"]
        assert victim.stages["preempted"] > 0
        assert [len([e for e in bench.of(name) if e.token]) for name in "ab"] == [24, 24]
        for ledger in bench.ledgers.values():
            assert ledger.engine_end is not None
            engine_side = sum(ledger.stages[stage] for stage in ("queue", "prefill", "preempted", "decode"))
            assert engine_side == pytest.approx(ledger.engine_end - ledger.arrival, abs=1e-6)
    finally:
        bench.engine.stop()


def _while_running(bench: Bench, *names: str, max_tokens: int = 40) -> None:
    """Submit and wait until each has a token."""
    for name in names:
        bench.submit(name, prompt=6, max_tokens=max_tokens)
    bench.wait(lambda: {e.request_id for e in bench.events if e.token} >= set(names))


def _on_engine(bench: Bench, change: Callable[[], Any]) -> Any:
    return bench.engine.call(change).result(10)


@pytest.mark.parametrize("num_blocks", [80, 20])
def test_a_new_pool_size_moves_all_parts_and_loses_no_token(bench: Bench, num_blocks: int) -> None:
    bench.runner.before_step = lambda output: time.sleep(0.002)
    _while_running(bench, "a", "b", "c")
    change = pool_changes.grow_pool if num_blocks > 64 else pool_changes.shrink_pool
    _on_engine(bench, lambda: change(bench.engine, num_blocks))
    assert bench.cache.num_blocks == bench.runner.num_blocks == num_blocks
    bench.wait(bench.ended("a", "b", "c"))
    for name in "abc":
        assert [event.token.token_id for event in bench.of(name) if event.token] == list(range(1, 41))
    bench.cache.check_integrity()


def test_a_shrunken_pool_sends_back_to_the_queue_who_does_not_fit(bench: Bench) -> None:
    bench.runner.before_step = lambda output: time.sleep(0.002)
    _while_running(bench, "a", "b", "c", max_tokens=30)
    bench.wait(lambda: len(bench.of("c")) >= 12)
    _on_engine(bench, lambda: pool_changes.shrink_pool(bench.engine, 10))
    assert bench.engine.scheduler.stats.preemptions["resize"] >= 1
    bench.wait(bench.ended("a", "b", "c"))
    assert all(event.failure is None for event in bench.events)
    assert [len([e for e in bench.of(name) if e.token]) for name in "abc"] == [30, 30, 30]
    bench.cache.check_integrity()


@pytest.mark.parametrize(("call", "change"), [("grow", "grow_pool"), ("shrink", "shrink_pool")])
def test_a_size_without_memory_changes_nothing(bench: Bench, call: str, change: str) -> None:
    bench.runner.refuse = call
    size = 80 if call == "grow" else 20
    with pytest.raises(MemoryError, match=call):
        _on_engine(bench, lambda: getattr(pool_changes, change)(bench.engine, size))
    assert bench.cache.num_blocks == bench.runner.num_blocks == 64
    bench.submit("a")
    bench.wait(bench.ended("a"))
    bench.cache.check_integrity()


def test_leaked_blocks_come_back_with_their_owner(bench: Bench) -> None:
    bench.runner.before_step = lambda output: time.sleep(0.002)
    _while_running(bench, "a", "b")
    _on_engine(bench, lambda: bench.cache.leak(1, bench.engine.scheduler.get("b")))
    bench.wait(bench.ended("a", "b"))
    assert bench.cache.ledger().leaked == 1
    done = _on_engine(bench, lambda: pool_changes.defragment(bench.engine))
    assert [item.owner for item in done.reclaimed] == ["b"] and bench.cache.ledger().leaked == 0
    bench.cache.check_integrity()


def test_a_pool_of_leaked_blocks_is_named_as_such_and_serves_again_once_they_are_back(bench: Bench) -> None:
    _on_engine(bench, lambda: bench.cache.leak(64))
    bench.submit("a")
    bench.wait(bench.ended("a"))
    failure = bench.of("a")[-1].failure
    assert failure is not None and failure.kind == "memory"
    assert failure.message == "64 of the 64 blocks of the KV pool are leaked: POST /admin/defragment gives them back."
    assert bench.engine.trouble(60) == failure.message
    _on_engine(bench, lambda: pool_changes.defragment(bench.engine))
    assert bench.engine.trouble(60) is None
    bench.submit("b")
    bench.wait(bench.ended("b"))
    assert bench.of("b")[-1].failure is None


@pytest.mark.parametrize("error", [MemoryError, RuntimeError])
def test_kv_that_could_not_be_moved_is_computed_again(bench: Bench, error: type[Exception]) -> None:
    bench.runner.before_step = lambda output: time.sleep(0.002)
    _while_running(bench, "a", "b")
    bench.engine.abort("a")  # leaves a hole below b
    bench.runner.refuse, bench.runner.error = "move", error
    with pytest.raises(error, match="move"):
        _on_engine(bench, lambda: pool_changes.defragment(bench.engine))
    bench.wait(bench.ended("b"))
    assert bench.engine.scheduler.stats.preemptions["fault"] == 1
    assert [event.token.token_id for event in bench.of("b") if event.token] == list(range(1, 41))


@pytest.mark.parametrize("refused", [False, True])
def test_another_block_size_keeps_the_queue(bench: Bench, refused: bool) -> None:
    bench.runner.before_step = lambda output: time.sleep(0.002)
    _while_running(bench, "a", "b")

    def change() -> None:
        with bench.engine.lock:
            bench.engine.scheduler.preempt_all("resize")
        bench.runner.refuse = "rebuild" if refused else None
        pool_changes.rebuild_pool(bench.engine, 8, 30)

    if refused:
        with pytest.raises(MemoryError):
            _on_engine(bench, change)
    else:
        _on_engine(bench, change)
    cache = bench.engine.cache
    assert cache is bench.engine.scheduler.cache and cache is not bench.cache
    assert (cache.block_size, cache.num_blocks) == ((4, 64) if refused else (8, 30))
    bench.wait(bench.ended("a", "b"))
    for name in "ab":
        assert [event.token.token_id for event in bench.of(name) if event.token] == list(range(1, 41))
    cache.check_integrity()


def test_a_pool_that_shrank_on_its_way_back_is_what_the_account_says(bench: Bench) -> None:
    _while_running(bench, "a", max_tokens=100)

    def rebuild(block_size: int, num_blocks: int) -> None:
        bench.runner.num_blocks = 40
        raise MemoryError("no memory for it; the pool has 160 tokens now")

    def change() -> None:
        with bench.engine.lock:
            bench.engine.scheduler.preempt_all("resize")
        bench.runner.rebuild_kv = rebuild  # type: ignore[method-assign]
        pool_changes.rebuild_pool(bench.engine, 8, 30)

    with pytest.raises(MemoryError, match="160 tokens now"):
        _on_engine(bench, change)
    assert (bench.engine.cache.block_size, bench.engine.cache.num_blocks) == (4, 40)
    bench.wait(bench.ended("a"))
    assert [event.token.token_id for event in bench.of("a") if event.token] == list(range(1, 101))


def test_a_lost_pool_ends_the_engine_with_a_reason(bench: Bench) -> None:
    bench.runner.before_step = lambda output: time.sleep(0.002)
    _while_running(bench, "a", max_tokens=100)

    def change() -> None:
        with bench.engine.lock:
            bench.engine.scheduler.preempt_all("resize")
        bench.runner.refuse, bench.runner.error = "rebuild", PoolLost
        pool_changes.rebuild_pool(bench.engine, 8, 30)

    changing = bench.engine.call(change)
    with pytest.raises(EngineStopped, match="no memory to rebuild"):
        changing.result(10)
    reason = "The engine stopped: no memory to rebuild."
    assert bench.engine.trouble(100) == reason == bench.engine.ended  # at once, not when the loop got there
    bench.wait(bench.ended("a"))
    bench.engine._thread.join(10)
    bench.submit("late")
    bench.wait(bench.ended("late"))
    for name in ("a", "late"):
        failure = bench.of(name)[-1].failure
        assert failure is not None and (failure.kind, failure.message) == ("memory", reason)
    for later in (bench.engine.call(lambda: None), bench.engine.call(lambda: None)):
        with pytest.raises(EngineStopped, match="no memory to rebuild"):
            later.result(10)
    with pytest.raises(EngineStopped):
        bench.engine.check_going()


def test_a_command_that_is_given_up_before_its_turn_never_runs(bench: Bench) -> None:
    started, gate, ran = threading.Event(), threading.Event(), threading.Event()

    def hold(output: ScheduleOutput) -> None:
        started.set()
        gate.wait(10)

    bench.runner.before_step = hold
    bench.submit("a", max_tokens=1)
    assert started.wait(10)
    given_up, kept = bench.engine.call(ran.set), bench.engine.call(lambda: "kept")
    assert (bench.engine.step_seconds or 0) > 0 and given_up.cancel()
    gate.set()
    assert kept.result(10) == "kept" and not ran.is_set()
    bench.wait(bench.ended("a"))
    assert bench.engine.call(lambda: bench.engine.step_seconds).result(10) is None


def test_a_pause_does_not_wait_for_a_step_that_stands_still(bench: Bench) -> None:
    started, gate = threading.Event(), threading.Event()

    def hold(output: ScheduleOutput) -> None:
        started.set()
        gate.wait(10)

    bench.runner.before_step = hold
    bench.submit("a", max_tokens=2)
    assert started.wait(10)
    bench.engine.pause()
    assert bench.engine.draining
    bench.engine.resume()
    gate.set()
    bench.wait(bench.ended("a"))
    assert not bench.engine.draining


def test_host_blocks_follow_on_both_sides(bench: Bench) -> None:
    for size in (7, 3, 0):
        _on_engine(bench, lambda size=size: pool_changes.set_host_blocks(bench.engine, size))
        assert bench.runner.num_host_blocks == bench.cache.host_blocks == size


def test_a_pause_queues_and_is_no_stall(bench: Bench) -> None:
    bench.engine.scheduler.pause()
    bench.submit("a")
    _on_engine(bench, lambda: None)
    time.sleep(0.1)
    assert bench.engine.draining and bench.engine.num_waiting == 1 and not bench.events
    assert bench.engine.trouble(0.09) is None
    bench.engine.scheduler.resume()
    bench.wait(bench.ended("a"))


@pytest.mark.parametrize("error", [ValueError, KeyError, IndexError, AssertionError])
def test_a_step_that_fails_in_any_way_fails_its_requests_alone(bench: Bench, error: type[Exception]) -> None:
    faults = iter([error("not enough values to unpack")])

    def fail_once(output: ScheduleOutput) -> None:
        for fault in faults:
            raise fault

    bench.runner.before_step = fail_once
    bench.submit("a")
    bench.wait(bench.ended("a"))
    failure = bench.of("a")[0].failure
    assert failure is not None and failure.kind == "internal" and "not enough values to unpack" in failure.message
    bench.submit("b")
    bench.wait(bench.ended("b"))
    assert bench.of("b")[-1].failure is None and bench.engine.trouble(10) is None


def test_only_refused_allocations_count_as_such(bench: Bench) -> None:
    texts = iter(["no memory was harmed: shape mismatch", "can't allocate memory: you tried to allocate 8 bytes"])

    def fail(output: ScheduleOutput) -> None:
        raise RuntimeError(next(texts))

    bench.runner.before_step = fail
    for name in "ab":
        bench.submit(name)
        bench.wait(bench.ended(name))
    kinds = [event.failure.kind for event in bench.events if event.failure]
    assert kinds == ["internal", "memory"] and bench.engine.oom_steps == 1
