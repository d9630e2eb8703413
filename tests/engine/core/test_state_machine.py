"""Random operations on scheduler and cache together, compared after each with a model that knows no blocks.

The model has a KV store of its own: what a real runner would write and read, as hashes of all tokens up to a position.
So a stale hash, a lost copy or two requests in one block shows as a wrong read, whatever the counts say.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from infradoc_engine.core.clock import VirtualClock
from infradoc_engine.core.errors import RequestTooLong
from infradoc_engine.core.kv_cache_manager import KVCacheManager
from infradoc_engine.core.request import Request
from infradoc_engine.core.scheduler.limits import SchedulerLimits
from infradoc_engine.core.scheduler.output import ScheduleOutput
from infradoc_engine.core.scheduler.scheduler import Scheduler

VOCABULARY = 3  # few, so that prompts and outputs meet in the prefix cache
STOP = 9  # sampled now and then
MAX_MODEL_LEN = 40


def chain(tokens: list[int]) -> list[int]:
    """For each position, a hash of all tokens up to it: the content of a right KV entry."""
    hashes, last = [], 0
    for token in tokens:
        last = hash((last, token))
        hashes.append(last)
    return hashes


@dataclass
class Client:
    """What one request must look like, worked out without blocks."""

    request: Request
    tokens: list[int]
    hashes: list[int]
    computed: int = 0  # positions whose KV it has; -1 while it waits
    lost_until: int = 0
    was_admitted: bool = False

    @property
    def num_output(self) -> int:
        return len(self.tokens) - len(self.request.prompt_token_ids)

    def next_token(self) -> int:
        return STOP if self.hashes[-1] % 29 == 0 else self.hashes[-1] % VOCABULARY


@dataclass
class Totals:
    computed: int = 0
    recomputed: int = 0
    sampled: int = 0
    preempted: int = 0
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("stop", "length", "abort", "error"), 0))


class CoreMachine(RuleBasedStateMachine):
    checked = 0  # operations, over all examples; each was followed by a full check
    events: ClassVar[Counter[str]] = Counter()  # what happened in them: a run without preemptions would prove little

    @initialize(
        num_blocks=st.integers(2, 14),
        block_size=st.integers(1, 4),
        max_num_seqs=st.integers(1, 8),
        budget=st.integers(1, 24),
        watermark=st.sampled_from([0.0, 0.0, 0.1, 0.4]),
        flags=st.integers(0, 3),
    )
    def start(
        self, num_blocks: int, block_size: int, max_num_seqs: int, budget: int, watermark: float, flags: int
    ) -> None:
        clock = VirtualClock()
        self.cache = KVCacheManager(num_blocks, block_size, clock=clock)
        self.limits = SchedulerLimits(max_num_seqs, budget, watermark, MAX_MODEL_LEN, flags & 1 == 0, flags & 2 == 0)
        self.scheduler = Scheduler(self.limits, self.cache, clock)
        self.clients: dict[str, Client] = {}
        self.arrived: list[str] = []
        self.kv: dict[tuple[int, int], int] = {}
        self.totals = Totals()
        self.num_added = 0

    # --- operations ---

    @precondition(lambda self: len(self.clients) < 24)
    @rule(times=st.integers(1, 4), length=st.integers(1, 20), variant=st.integers(0, 3), max_tokens=st.integers(1, 30))
    def add(self, times: int, length: int, variant: int, max_tokens: int) -> None:
        for extra in range(times):
            self.add_one(length + extra, variant, max_tokens)

    @precondition(lambda self: len(self.clients) < 24)
    @rule(times=st.integers(2, 6), variant=st.integers(0, 3))
    def add_same(self, times: int, variant: int) -> None:
        for _ in range(times):
            self.add_one(2 * self.cache.block_size, variant, 16)

    def add_one(self, length: int, variant: int, max_tokens: int) -> None:
        # Variants agree on a first part and then differ: shared prefixes, full hits and dead ends all happen.
        prompt = [(i if i < 4 + 4 * variant else i * variant) % VOCABULARY for i in range(length)]
        self.num_added += 1
        request_id = f"q{self.num_added}"
        request = Request(request_id, prompt, max_tokens, stop_token_ids=frozenset({STOP}))
        fits = length + 1 <= min(MAX_MODEL_LEN, self.cache.num_blocks * self.cache.block_size)
        try:
            self.scheduler.add(request)
            assert fits
            self.clients[request_id] = Client(request, list(prompt), chain(prompt), computed=-1)
            self.arrived.append(request_id)
        except RequestTooLong:
            assert not fits
        self.check()

    @rule(times=st.integers(1, 20))
    def step(self, times: int) -> None:
        for _ in range(times):
            output = self.schedule()
            self.finish_step(output)
            if not self.clients:
                break

    @precondition(lambda self: len(self.clients) > 2)
    @rule(pick=st.integers(0, 15), reason=st.sampled_from(["abort", "stop"]), during_step=st.booleans())
    def end(self, pick: int, reason: str, during_step: bool) -> None:
        output = self.schedule() if during_step else None
        if self.clients:
            request_id = list(self.clients)[pick % len(self.clients)]
            assert self.scheduler.finish(request_id, reason)
            assert not self.scheduler.abort(request_id)
            self.forget(request_id, reason)
        if output is not None:
            self.finish_step(output)
        self.check()

    @precondition(lambda self: self.clients)
    @rule()
    def lose_step(self) -> None:
        output = self.schedule()
        # The runner failed half way: places of the step hold rubbish and the copies may not have been made.
        for item in output.scheduled:
            for position in range(item.start, item.start + len(item.token_ids)):
                self.kv[self.place(item.block_table, position)] = -1
        for _, destination in output.block_copies:
            for offset in range(self.cache.block_size):
                self.kv[destination, offset] = -1

    @precondition(lambda self: self.clients)
    @rule(pick=st.integers(0, 15))
    def preempt(self, pick: int) -> None:
        client = list(self.clients.values())[pick % len(self.clients)]
        runs = client.computed >= 0
        assert self.scheduler.preempt(client.request.request_id, "fault") == runs
        assert not self.scheduler.preempt(client.request.request_id, "fault")
        if runs:
            self.lose(client.request.request_id, client.computed)
        self.check()

    @precondition(lambda self: self.cache.num_blocks < 24)
    @rule(more=st.integers(1, 4))
    def grow(self, more: int) -> None:
        self.cache.grow(self.cache.num_blocks + more)
        self.check()

    @rule(max_num_seqs=st.integers(1, 8), budget=st.integers(1, 24))
    def change_limits(self, max_num_seqs: int, budget: int) -> None:
        self.limits.max_num_seqs, self.limits.max_num_batched_tokens = max_num_seqs, budget
        self.check()

    @rule(which=st.integers(0, 4))
    def toggle(self, which: int) -> None:
        if which == 0:
            self.limits.prefix_caching = not self.limits.prefix_caching
        elif which == 1:
            self.limits.chunked_prefill = not self.limits.chunked_prefill
        else:
            self.limits.watermark = (0.0, 0.15, 0.5)[which - 2]
        self.check()

    # --- the model ---

    def place(self, table: list[int], position: int) -> tuple[int, int]:
        return table[position // self.cache.block_size], position % self.cache.block_size

    def schedule(self) -> ScheduleOutput:
        ran_before = self.scheduler.num_running
        output = self.scheduler.schedule()
        self.events.update(copies=len(output.block_copies), resumed=len(output.resumed))
        for request_id, preemption in output.preempted:
            self.events[preemption.reason] += 1
            self.totals.preempted += 1
            self.lose(request_id, preemption.lost_tokens)
        for request_id in (*output.admitted, *output.resumed):
            self.admit(request_id, first=request_id in output.admitted)
        for request_id, reason in output.finished:
            self.forget(request_id, reason)
        assert sum(len(item.token_ids) for item in output.scheduled) <= self.limits.max_num_batched_tokens
        assert self.scheduler.num_running <= max(ran_before, self.limits.max_num_seqs)
        kinds = [item.is_prefill for item in output.scheduled]
        assert kinds == sorted(kinds), "decodes come first"
        if (output.admitted or output.resumed) and self.scheduler.num_running > 1:
            assert self.cache.pool.num_available >= self.cache.watermark_blocks
        if not output.scheduled and not output.preempted and not output.finished:
            assert not self.clients, "work, but no step"
        self.check()
        return output

    def lose(self, request_id: str, lost_tokens: int) -> None:
        client = self.clients[request_id]
        assert client.computed in (lost_tokens, -1)  # -1: taken away between two steps, and noted then
        client.lost_until = max(client.lost_until, lost_tokens)
        client.computed = -1

    def admit(self, request_id: str, *, first: bool) -> None:
        client = self.clients[request_id]
        assert first != client.was_admitted
        assert client.computed == -1
        if first:
            waiting = [r for r in self.arrived if r in self.clients and not self.clients[r].was_admitted]
            assert waiting[0] == request_id, "first come, first served"
        client.was_admitted = True
        client.computed = client.request.num_computed_tokens

    def finish_step(self, output: ScheduleOutput) -> None:
        self.execute(output)
        alive = [item for item in output.scheduled if item.request_id in self.clients]
        tokens = {i.request_id: self.clients[i.request_id].next_token() for i in alive if i.samples}
        sampled = {item.request_id: tokens.get(item.request_id, 0) for item in output.scheduled if item.samples}
        update = self.scheduler.update(output, sampled)
        for item in alive:
            self.account(item.request_id, item.start, item.start + len(item.token_ids))
        assert [(r, t) for r, t, _ in update.tokens] == list(tokens.items())
        for request_id, token, reason in update.tokens:
            self.take(request_id, token, reason)
        self.check()

    def execute(self, output: ScheduleOutput) -> None:
        """Copy, write, then read all that attention would read."""
        for source, destination in output.block_copies:
            for offset in range(self.cache.block_size):
                self.kv[destination, offset] = self.kv[source, offset]
        written: set[tuple[int, int]] = set()
        for item in output.scheduled:
            if item.request_id not in self.clients:
                continue
            client = self.clients[item.request_id]
            stop = item.start + len(item.token_ids)
            assert item.token_ids and item.start == client.computed
            assert item.token_ids == client.tokens[item.start : stop]
            assert item.samples == (stop == len(client.tokens))
            for position in range(item.start, stop):
                place = self.place(item.block_table, position)
                assert place not in written
                assert self.cache.pool.ref_count(place[0]) == 1 and self.cache.pool.hash_of(place[0]) is None
                written.add(place)
                self.kv[place] = client.hashes[position]
        for item in output.scheduled:
            if item.request_id in self.clients:
                table, hashes = item.block_table, self.clients[item.request_id].hashes
                stop = item.start + len(item.token_ids)
                assert [self.kv[self.place(table, p)] for p in range(stop)] == hashes[:stop]

    def account(self, request_id: str, start: int, stop: int) -> None:
        client = self.clients[request_id]
        client.computed = stop
        self.totals.computed += stop - start
        self.totals.recomputed += sum(1 for position in range(start, stop) if position < client.lost_until)

    def take(self, request_id: str, token: int, reason: str | None) -> None:
        client = self.clients[request_id]
        client.tokens.append(token)
        client.hashes.append(hash((client.hashes[-1], token)))
        self.totals.sampled += 1
        expected = None
        if token in client.request.stop_token_ids:
            expected = "stop"
        elif client.num_output == client.request.max_tokens or len(client.tokens) >= min(
            MAX_MODEL_LEN, self.cache.num_blocks * self.cache.block_size + 1
        ):
            expected = "length"
        assert reason == expected
        if reason is not None:
            self.forget(request_id, reason)

    def forget(self, request_id: str, reason: str) -> None:
        client = self.clients.pop(request_id)
        self.totals.finished[reason] += 1
        assert client.request.finish_reason == reason and client.request.state == "finished"
        assert client.request.output_token_ids == client.tokens[len(client.request.prompt_token_ids) :]
        assert not client.request.block_table

    def check(self) -> None:
        CoreMachine.checked += 1
        self.cache.check_integrity()
        ledger, stats = self.cache.ledger(), self.scheduler.stats
        assert ledger.num_blocks == self.cache.num_blocks and ledger.leaked == 0
        assert sum(length for _, length in self.cache.block_map()) == self.cache.num_blocks
        assert self.scheduler.num_running + self.scheduler.num_waiting == len(self.clients)
        assert self.scheduler.has_work() == bool(self.clients)
        seen_before = [self.clients[r.request_id].was_admitted for r in self.scheduler.waiting]
        assert seen_before == sorted(seen_before, reverse=True), "the preempted wait at the head"
        assert not self.clients or self.cache.usage <= 1.0
        if not self.scheduler.num_running:
            assert ledger.live == ledger.shared == ledger.tail_waste_tokens == 0
        parts = stats.prompt_computed_tokens + stats.output_computed_tokens + stats.recomputed_tokens
        assert parts == self.totals.computed
        assert stats.recomputed_tokens == self.totals.recomputed
        assert stats.generation_tokens == self.totals.sampled
        assert stats.finished == self.totals.finished

    def teardown(self) -> None:
        """Whatever was left behind ends, in a bounded number of steps."""
        if not hasattr(self, "clients"):
            return
        for _ in range(MAX_MODEL_LEN * MAX_MODEL_LEN * (len(self.clients) + 1)):
            if not self.clients:
                break
            self.finish_step(self.schedule())
        assert not self.clients
        assert sum(self.scheduler.stats.preemptions.values()) >= self.totals.preempted
        assert self.cache.pool.num_used == 0
        stats = self.scheduler.stats
        self.events.update(hits=stats.prefix_hit_tokens, rehits=stats.resumed_hit_tokens, full=stats.pool_exhausted)


def run_machine(max_examples: int, *, derandomize: bool) -> int:
    before = CoreMachine.checked
    run_state_machine_as_test(
        CoreMachine,
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=60,
            derandomize=derandomize,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    return CoreMachine.checked - before


def test_100_000_checked_steps() -> None:
    """Reproducible: the same operations on every run."""
    CoreMachine.events.clear()
    assert run_machine(600, derandomize=True) >= 100_000
    for event in ("copies", "resumed", "kv_full", "fault", "hits", "rehits", "full"):
        assert CoreMachine.events[event] >= 300, event


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_million_checked_steps() -> None:
    """Other operations on every run; hypothesis prints how to repeat a failure."""
    assert run_machine(6000, derandomize=False) >= 1_000_000
