"""Random operations on scheduler and cache together, compared after each with a model that knows no blocks.

The model has a KV store of its own: what a real runner would write and read, as hashes of all tokens up to a position.
So a stale hash, a lost copy or two requests in one block shows as a wrong read, whatever the counts say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from infradoc_engine.core.clock import VirtualClock
from infradoc_engine.core.errors import BlocksLeaked, RequestTooLong, StepUnderWay
from infradoc_engine.core.kv_cache_manager import KVCacheManager
from infradoc_engine.core.request import Preemption, PreemptionMode, Request
from infradoc_engine.core.scheduler.limits import SchedulerLimits
from infradoc_engine.core.scheduler.output import ScheduledRequest, ScheduleOutput
from infradoc_engine.core.scheduler.scheduler import Scheduler

VOCABULARY = 3  # few, so that prompts and outputs meet in the prefix cache
STOP = 9  # sampled now and then
MAX_MODEL_LEN = 40
WHICH_STEP = st.sampled_from([None, "next", "swap_out", "swap_in"])


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
    computed: int = 0  # positions whose KV it has on the device; -1 while it waits
    swapped: int = -1  # positions whose KV it has on the host
    returning: bool = False  # a swap-in is under way: it has both
    lost_until: int = 0
    was_admitted: bool = False

    @property
    def num_output(self) -> int:
        return len(self.tokens) - len(self.request.prompt_token_ids)

    def next_token(self) -> int:
        return STOP if self.hashes[-1] % 29 == 0 else self.hashes[-1] % VOCABULARY

    def lose(self, num_tokens: int) -> None:
        self.lost_until = max(self.lost_until, num_tokens)
        self.computed, self.swapped, self.returning = -1, -1, False

    def keep_on_host(self, num_tokens: int) -> None:
        self.computed, self.swapped, self.returning = -1, num_tokens, False


@dataclass
class Totals:
    computed: int = 0
    recomputed: int = 0
    sampled: int = 0
    preempted: int = 0
    swapped_out: int = 0
    swapped_in: int = 0
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
        host_blocks=st.sampled_from([0, 3, 8, 30]),
        flags=st.integers(0, 11),
    )
    def start(
        self,
        num_blocks: int,
        block_size: int,
        max_num_seqs: int,
        budget: int,
        watermark: float,
        host_blocks: int,
        flags: int,
    ) -> None:
        self.clock = VirtualClock()
        self.cache = KVCacheManager(num_blocks, block_size, clock=self.clock, host_blocks=host_blocks)
        mode: PreemptionMode = "recompute" if flags < 4 else "swap"
        self.limits = SchedulerLimits(
            max_num_seqs, budget, watermark, MAX_MODEL_LEN, flags & 1 == 0, flags & 2 == 0, mode
        )
        self.scheduler = Scheduler(self.limits, self.cache, self.clock)
        self.clients: dict[str, Client] = {}
        self.arrived: list[str] = []
        self.kv: dict[tuple[int, int], int] = {}  # (block, offset) -> content
        self.host: dict[tuple[int, int], int] = {}
        self.forgotten: set[int] = set()  # blocks with a reference that was taken and forgotten
        self.lost: list[str] = []  # requests whose copies a lost step did not make; the scheduler was not told yet
        self.totals = Totals()
        self.num_added = 0

    # --- operations on requests ---

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
        fits = length + 1 <= min(MAX_MODEL_LEN, self.usable_tokens())
        try:
            self.scheduler.add(request)
            assert fits
            self.clients[request_id] = Client(request, list(prompt), chain(prompt), computed=-1)
            self.arrived.append(request_id)
        except (RequestTooLong, BlocksLeaked) as refusal:
            assert not fits
            in_a_sound_pool = length + 1 <= min(MAX_MODEL_LEN, self.cache.num_blocks * self.cache.block_size)
            assert isinstance(refusal, BlocksLeaked) == in_a_sound_pool
        self.check()

    @precondition(lambda self: len(self.clients) < 20)
    @rule(times=st.integers(2, 4), variant=st.integers(0, 3), then=st.sampled_from(["", "", "end", "lose", "preempt"]))
    def press(self, times: int, variant: int, then: str) -> None:
        """Fill the pool with requests that are going to outgrow it, in swap mode, until one is swapped out."""
        self.scheduler.resume()
        self.limits.preemption_mode, self.limits.max_num_seqs, self.limits.watermark = "swap", 8, 0.0
        self.change_host_pool(12)
        for _ in range(times):
            self.add_one(max(self.usable_tokens() // times - 1, 1), variant, 30)
        which = ("swap_out", "swap_in")[variant % 2]
        if then == "end" and self.clients:
            self.end(pick=2 * times + 1, reason="abort", during=which)
        elif then == "lose":
            self.lose_step(touched=variant < 2, told=times % 2 == 0, which=which)
        elif then == "preempt":
            self.preempt(pick=2 * times + 1, during=which)
        else:
            self.finish_step(self.schedule_a(which))

    @rule(times=st.integers(1, 20))
    def step(self, times: int) -> None:
        for _ in range(times):
            output = self.schedule()
            self.finish_step(output)
            if not self.clients or (self.scheduler.paused and not output.scheduled):
                break

    @precondition(lambda self: len(self.clients) > 2)
    @rule(pick=st.integers(0, 15), reason=st.sampled_from(["abort", "stop"]), during=WHICH_STEP)
    def end(self, pick: int, reason: str, during: str | None) -> None:
        output = self.schedule_a(during) if during else None
        if self.clients:
            request_id = self.pick(pick, output)
            assert self.scheduler.finish(request_id, reason)
            assert not self.scheduler.abort(request_id)
            self.forget(request_id, reason)
        if output is not None:
            self.finish_step(output)
        self.check()

    def schedule_a(self, which: str) -> ScheduleOutput:
        """The next step, or the first of the next few that swaps in the wanted direction."""
        for _ in range(20):
            output = self.schedule()
            if which == "next" or getattr(output, which) or not output.scheduled:
                return output
            self.finish_step(output)
        return self.schedule()

    def pick(self, number: int, output: ScheduleOutput | None) -> str:
        """A client; while a step swaps, one of those it swaps in every second case."""
        names = list(self.clients)
        if output is not None and number % 2 and (output.swap_in or output.swap_out):
            moved = [*output.resumed, *(name for name, p in output.preempted if p.mode == "swap")]
            names = [name for name in moved if name in self.clients] or names
        return names[number % len(names)]

    @precondition(lambda self: self.clients)
    @rule(pick=st.integers(0, 15), during=WHICH_STEP)
    def preempt(self, pick: int, during: str | None) -> None:
        output = self.schedule_a(during) if during else None
        if self.clients:
            client = self.clients[self.pick(pick, output)]
            request_id, runs, returns = client.request.request_id, client.computed >= 0, client.returning
            assert self.scheduler.preempt(request_id, "fault") == runs
            assert not self.scheduler.preempt(request_id, "fault")
            if runs:
                assert client.request.preemptions[-1].mode == ("swap" if returns else "recompute")
                self.events["kept while returning"] += returns
                (client.keep_on_host if returns else client.lose)(client.computed)
        self.check()
        if output is not None:
            self.finish_step(output)

    # --- operations on a step ---

    @precondition(lambda self: self.clients)
    @rule(touched=st.booleans(), told=st.booleans(), which=st.sampled_from(["next", "swap_out", "swap_in"]))
    def lose_step(self, touched: bool, told: bool, which: str) -> None:
        """The runner failed, before it did anything or (`touched`) with rubbish in all places it was to write."""
        output = self.schedule_a(which)
        if output.needs_runner:
            self.check_refusals()
        if touched:
            for item in output.scheduled:
                for position in range(item.start, item.start + len(item.token_ids)):
                    self.kv[self.place(item.block_table, position)] = -1
            for _, block in (*output.block_copies, *output.swap_in):
                self.write_block(self.kv, block, [-1] * self.cache.block_size)
            for _, block in output.swap_out:
                self.write_block(self.host, block, [-1] * self.cache.block_size)
        swapped = [name for name, p in output.preempted if p.mode == "swap" and p.reason == "kv_full"]
        copied = {block for _, block in output.block_copies}
        broken = [item.request_id for item in output.scheduled if copied.intersection(item.block_table)]
        self.lost = [name for name in (*swapped, *broken) if name in self.clients]
        self.events.update({"swap-outs lost": len(swapped), "swap-ins lost": len(output.swap_in)})
        if told:
            self.scheduler.abandon_step()
            self.notice_loss()
            self.check()

    def check_refusals(self) -> None:
        for change in (
            self.cache.defragment,
            lambda: self.cache.shrink(1),
            lambda: self.scheduler.set_host_blocks(0),
            lambda: self.scheduler.replace_cache(self.cache),
        ):
            with pytest.raises(StepUnderWay, match="between two steps"):
                change()

    def notice_loss(self) -> None:
        """The scheduler gave a lost step up: what its copies wrote is gone, what its swap-ins read is not."""
        for name in self.lost:
            client = self.clients[name]
            last, had = client.request.preemptions[-1], max(client.swapped, client.computed)
            assert (last.mode, last.lost_tokens) == ("recompute", had)
            client.lose(had)
        self.lost = []
        for client in self.clients.values():
            if client.returning:
                client.keep_on_host(client.computed)

    # --- operations on pools and settings ---

    @precondition(lambda self: self.cache.num_blocks < 24)
    @rule(more=st.integers(1, 4))
    def grow(self, more: int) -> None:
        self.cache.grow(self.cache.num_blocks + more)
        self.check()

    @precondition(lambda self: self.cache.num_blocks - len(self.forgotten) > 4)
    @rule(count=st.integers(1, 2), pick=st.integers(0, 15), idle=st.booleans())
    def leak(self, count: int, pick: int, idle: bool) -> None:
        request = None
        if self.clients and not idle:
            request = list(self.clients.values())[pick % len(self.clients)].request
        self.forgotten.update(self.cache.leak(count, request))
        self.check()

    @rule()
    def reclaim(self) -> None:
        leaked = self.leaked()
        assert [item.block for item in self.cache.reclaim_leaked()] == leaked
        assert all(self.cache.pool.hash_of(block) is None for block in leaked)
        self.forgotten.difference_update(leaked)
        self.events["reclaimed"] += len(leaked)
        self.check()

    @rule(shrink_to=st.integers(1, 14) | st.none())
    def defragment(self, shrink_to: int | None) -> None:
        self.between_steps()
        leaked = self.leaked()
        done = self.cache.defragment()
        assert [item.block for item in done.reclaimed] == leaked
        where = dict(done.moves)
        assert len(set(where.values())) == len(where)
        read = {block: self.read_block(self.kv, block) for block in where}
        for source, destination in done.moves:
            self.write_block(self.kv, destination, read[source])
        self.forgotten = {where.get(block, block) for block in self.forgotten.difference(leaked)}
        pool = self.cache.pool
        assert sorted({b for c in self.clients.values() for b in c.request.block_table}) == list(range(pool.num_used))
        assert sorted(pool.cached_order()) == list(range(pool.num_used, pool.num_used + pool.num_cached))
        for block in pool.free_order():  # nobody may read these again before they are written
            self.write_block(self.kv, block, [-1] * self.cache.block_size)
        self.events["moved"] += len(done.moves)
        self.check()
        if shrink_to is not None:
            self.shrink(shrink_to)

    def shrink(self, num_blocks: int) -> None:
        before = self.cache.num_blocks
        if self.cache.pool.num_used <= num_blocks < before:
            self.cache.shrink(num_blocks)
            self.kv = {place: content for place, content in self.kv.items() if place[0] < num_blocks}
            self.events["shrunk"] += 1
        else:
            with pytest.raises(ValueError, match="beyond" if num_blocks < before else "cannot shrink"):
                self.cache.shrink(num_blocks)
            assert self.cache.num_blocks == before
        self.check()

    @precondition(lambda self: len(self.clients) > 3)
    @rule(num_blocks=st.integers(3, 14), block_size=st.integers(1, 4), host_blocks=st.sampled_from([0, 8]))
    def replace_cache(self, num_blocks: int, block_size: int, host_blocks: int) -> None:
        self.between_steps()
        assert self.scheduler.preempt_all("resize") == sum(c.computed >= 0 for c in self.clients.values())
        self.cache = KVCacheManager(num_blocks, block_size, clock=self.clock, host_blocks=host_blocks)
        self.scheduler.replace_cache(self.cache)
        for client in self.clients.values():
            client.lose(max(client.computed, client.swapped, 0))
        self.kv, self.host, self.forgotten = {}, {}, set()
        self.check()

    @rule(num_blocks=st.sampled_from([0, 2, 5, 12, 30]))
    def change_host_pool(self, num_blocks: int) -> None:
        self.between_steps()
        if self.cache.swaps.pool.owners_beyond(num_blocks):
            with pytest.raises(ValueError, match="hold host blocks beyond"):
                self.cache.set_host_blocks(num_blocks)
        dropped = self.scheduler.set_host_blocks(num_blocks)
        gone = [c for c in self.clients.values() if c.swapped >= 0 and not self.cache.is_swapped(c.request)]
        assert len(gone) == dropped and self.cache.host_blocks == num_blocks
        for client in gone:
            client.lose(client.swapped)
        self.events["host copies dropped"] += dropped
        self.check()

    def between_steps(self) -> None:
        """What an engine does first after a failure; a loss that nobody told would be in the way."""
        self.scheduler.abandon_step()
        self.notice_loss()

    @rule(max_num_seqs=st.integers(1, 8), budget=st.integers(1, 24))
    def change_limits(self, max_num_seqs: int, budget: int) -> None:
        self.limits.max_num_seqs, self.limits.max_num_batched_tokens = max_num_seqs, budget
        self.check()

    @rule(which=st.integers(0, 6))
    def toggle(self, which: int) -> None:
        if which == 0:
            self.limits.prefix_caching = not self.limits.prefix_caching
        elif which == 1:
            self.limits.chunked_prefill = not self.limits.chunked_prefill
        elif which == 2:
            self.limits.preemption_mode = "recompute" if self.limits.preemption_mode == "swap" else "swap"
        elif which == 3:
            (self.scheduler.resume if self.scheduler.paused else self.scheduler.pause)()
        else:
            self.limits.watermark = (0.0, 0.15, 0.5)[which - 4]
        self.check()

    # --- the model ---

    def place(self, table: list[int], position: int) -> tuple[int, int]:
        return table[position // self.cache.block_size], position % self.cache.block_size

    def read_block(self, memory: dict[tuple[int, int], int], block: int) -> list[int | None]:
        return [memory.get((block, offset)) for offset in range(self.cache.block_size)]

    def write_block(self, memory: dict[tuple[int, int], int], block: int, content: Sequence[int | None]) -> None:
        for offset, value in enumerate(content):
            memory[block, offset] = -1 if value is None else value

    def leaked(self) -> list[int]:
        tables = {block for client in self.clients.values() for block in client.request.block_table}
        return sorted(self.forgotten - tables)

    def usable_tokens(self) -> int:
        return (self.cache.num_blocks - len(self.leaked())) * self.cache.block_size

    def schedule(self) -> ScheduleOutput:
        self.clock.advance(0.25)
        ran_before = self.scheduler.num_running
        paused = self.scheduler.paused
        output = self.scheduler.schedule()
        self.notice_loss()
        self.events.update(copies=len(output.block_copies), resumed=len(output.resumed))
        self.events.update({"swapped out": len(output.swap_out), "swapped in": len(output.swap_in)})
        for request_id, preemption in output.preempted:
            self.events[preemption.reason] += 1
            self.totals.preempted += 1
            self.take_away(request_id, preemption)
        for request_id, reason in output.finished:  # first: those behind them may be admitted in the same step
            self.forget(request_id, reason)
        for request_id in (*output.admitted, *output.resumed):
            assert not paused
            self.admit(request_id, first=request_id in output.admitted)
        assert sum(len(item.token_ids) for item in output.scheduled) <= self.limits.max_num_batched_tokens
        assert self.scheduler.num_running <= max(ran_before, self.limits.max_num_seqs)
        kinds = [item.is_prefill for item in output.scheduled]
        assert kinds == sorted(kinds), "decodes come first"
        if (output.admitted or output.resumed) and self.scheduler.num_running > 1:
            assert self.cache.pool.num_available >= self.cache.watermark_blocks
        if not output.scheduled and not output.preempted and not output.finished:
            assert not self.clients or paused, "work, but no step"
        self.check_in_flight(output)
        self.check()
        return output

    def check_in_flight(self, output: ScheduleOutput) -> None:
        if not output.swap_out and not output.swap_in:
            return
        states = [state for state, length in self.cache.block_map() for _ in range(length)]
        tables = {block for client in self.clients.values() for block in client.request.block_table}
        assert all(states[block] == "reserved" for _, block in output.swap_in)
        handed_out = tables | self.forgotten
        assert all(states[block] == "reserved" for block, _ in output.swap_out if block not in handed_out)
        assert len({block for _, block in output.swap_out}) == len(output.swap_out), "host blocks have one owner"
        assert output.needs_runner

    def take_away(self, request_id: str, preemption: Preemption) -> None:
        client = self.clients[request_id]
        if client.computed == -1:  # taken away between two steps, and noted then
            return
        if preemption.mode == "swap":
            assert preemption.lost_tokens == 0 and preemption.reason == "kv_full"
            client.keep_on_host(client.computed)
        else:
            assert preemption.lost_tokens == client.computed
            client.lose(client.computed)

    def admit(self, request_id: str, *, first: bool) -> None:
        client = self.clients[request_id]
        assert first != client.was_admitted
        assert client.computed == -1
        if first:
            waiting = [r for r in self.arrived if r in self.clients and not self.clients[r].was_admitted]
            assert waiting[0] == request_id, "first come, first served"
        client.was_admitted = True
        client.computed = client.request.num_computed_tokens
        if client.swapped >= 0:
            assert client.computed == client.swapped
            client.returning = True

    def finish_step(self, output: ScheduleOutput) -> None:
        self.execute(output)
        alive = [item for item in output.scheduled if self.is_alive(item)]
        tokens = {i.request_id: self.clients[i.request_id].next_token() for i in alive if i.samples}
        sampled = {item.request_id: tokens.get(item.request_id, 0) for item in output.scheduled if item.samples}
        usable = self.usable_tokens()
        update = self.scheduler.update(output, sampled)
        self.totals.swapped_out += len(output.swap_out)
        self.totals.swapped_in += len(output.swap_in)
        for client in self.clients.values():
            if client.returning:
                client.swapped, client.returning = -1, False
        for item in alive:
            self.account(item.request_id, item.start, item.start + len(item.token_ids))
        assert [(r, t) for r, t, _ in update.tokens] == list(tokens.items())
        for request_id, token, reason in update.tokens:
            self.take(request_id, token, reason, usable)
            usable = self.usable_tokens()
        self.check()

    def is_alive(self, item: ScheduledRequest) -> bool:
        client = self.clients.get(item.request_id)
        return client is not None and client.computed >= 0

    def execute(self, output: ScheduleOutput) -> None:
        """Copy, write, then read all that attention would read. Requests that ended meanwhile write rubbish."""
        for device, host in output.swap_out:
            self.write_block(self.host, host, self.read_block(self.kv, device))
        for source, destination in output.block_copies:
            self.write_block(self.kv, destination, self.read_block(self.kv, source))
        for host, device in output.swap_in:
            self.write_block(self.kv, device, self.read_block(self.host, host))
        written: set[tuple[int, int]] = set()
        for item in output.scheduled:
            places = [self.place(item.block_table, p) for p in range(item.start, item.start + len(item.token_ids))]
            assert written.isdisjoint(places)
            written.update(places)
            if not self.is_alive(item):
                self.kv.update(dict.fromkeys(places, -1))
                continue
            client = self.clients[item.request_id]
            stop = item.start + len(item.token_ids)
            assert item.token_ids and item.start == client.computed
            assert item.token_ids == client.tokens[item.start : stop]
            assert item.samples == (stop == len(client.tokens))
            for block in {block for block, _ in places}:
                assert self.cache.pool.ref_count(block) == 1 or block in self.forgotten
                assert self.cache.pool.hash_of(block) is None
            self.kv.update(zip(places, client.hashes[item.start : stop], strict=True))
        for item in output.scheduled:
            if self.is_alive(item):
                table, hashes = item.block_table, self.clients[item.request_id].hashes
                stop = item.start + len(item.token_ids)
                assert [self.kv[self.place(table, p)] for p in range(stop)] == hashes[:stop]

    def account(self, request_id: str, start: int, stop: int) -> None:
        client = self.clients[request_id]
        client.computed = stop
        self.totals.computed += stop - start
        self.totals.recomputed += sum(1 for position in range(start, stop) if position < client.lost_until)

    def take(self, request_id: str, token: int, reason: str | None, usable_tokens: int) -> None:
        client = self.clients[request_id]
        client.tokens.append(token)
        client.hashes.append(hash((client.hashes[-1], token)))
        self.totals.sampled += 1
        expected = None
        if token in client.request.stop_token_ids:
            expected = "stop"
        elif client.num_output == client.request.max_tokens or len(client.tokens) >= min(
            MAX_MODEL_LEN, usable_tokens + 1
        ):
            expected = "length"
        assert reason == expected
        if reason is not None:
            self.forget(request_id, reason)

    def forget(self, request_id: str, reason: str) -> None:
        client = self.clients.pop(request_id)
        self.lost = [name for name in self.lost if name != request_id]
        self.totals.finished[reason] += 1
        assert client.request.finish_reason == reason and client.request.state == "finished"
        assert client.request.output_token_ids == client.tokens[len(client.request.prompt_token_ids) :]
        assert not client.request.block_table and not self.cache.is_swapped(client.request)

    def check(self) -> None:
        CoreMachine.checked += 1
        self.cache.check_integrity(leaks_allowed=bool(self.forgotten))
        ledger, stats = self.cache.ledger(), self.scheduler.stats
        assert ledger.num_blocks == self.cache.num_blocks
        assert [item.block for item in self.cache.leaked_blocks()] == self.leaked()
        assert sum(length for _, length in self.cache.block_map()) == self.cache.num_blocks
        self.check_owners()
        assert self.scheduler.num_running + self.scheduler.num_waiting == len(self.clients)
        assert self.scheduler.has_work() == bool(self.clients)
        seen_before = [self.clients[r.request_id].was_admitted for r in self.scheduler.waiting]
        assert seen_before == sorted(seen_before, reverse=True), "the preempted wait at the head"
        assert not self.clients or self.cache.usage <= 1.0
        assert self.cache.usage == ledger.usage_ratio
        if not self.scheduler.num_running:
            assert ledger.live == ledger.shared == ledger.tail_waste_tokens == 0
        self.check_host()
        parts = stats.prompt_computed_tokens + stats.output_computed_tokens + stats.recomputed_tokens
        assert parts == self.totals.computed
        assert stats.recomputed_tokens == self.totals.recomputed
        assert stats.generation_tokens == self.totals.sampled
        assert stats.finished == self.totals.finished
        assert (stats.swapped_out_blocks, stats.swapped_in_blocks) == (
            self.totals.swapped_out,
            self.totals.swapped_in,
        )

    def check_owners(self) -> None:
        held: dict[int, list[str]] = {}
        for request_id, client in self.clients.items():
            for block in client.request.block_table:
                held.setdefault(block, []).append(request_id)
        leaked = set(self.leaked())
        rows = [(owner, age) for owner, age, blocks in self.cache.holders().rows().rows for _ in range(blocks)]
        assert len(rows) == self.cache.num_blocks
        for block, (owner, age) in enumerate(rows):
            ids = held.get(block, [])
            assert block in leaked or owner == (f"{len(ids)} requests" if len(ids) > 1 else ids[0] if ids else None)
            assert (age is not None) == (bool(ids) or block in leaked)
            assert age is None or 0.0 <= age <= self.clock.now() + 0.05

    def check_host(self) -> None:
        on_host = [client for client in self.clients.values() if client.swapped >= 0]
        held = sum(self.cache.blocks_for(client.swapped) for client in on_host)
        assert self.cache.host_free_blocks == self.cache.host_blocks - held, "each host block is freed once"
        assert self.scheduler.num_swapped == sum(not client.returning for client in on_host)

    def teardown(self) -> None:
        """Whatever was left behind ends, in a bounded number of steps."""
        if not hasattr(self, "clients"):
            return
        self.scheduler.resume()
        for _ in range(MAX_MODEL_LEN * MAX_MODEL_LEN * (len(self.clients) + 1)):
            if not self.clients:
                break
            self.finish_step(self.schedule())
        assert not self.clients
        assert sum(self.scheduler.stats.preemptions.values()) >= self.totals.preempted
        self.cache.reclaim_leaked()
        assert self.cache.pool.num_used == 0 and self.cache.host_usage_ratio == 0.0
        stats = self.scheduler.stats
        self.events.update(hits=stats.prefix_hit_tokens, rehits=stats.resumed_hit_tokens, full=stats.pool_exhausted)
        self.events["refused"] += stats.swaps_refused


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
    assert run_machine(400, derandomize=True) >= 100_000
    common = ("copies", "resumed", "kv_full", "fault", "hits", "rehits", "full", "swapped out", "swapped in")
    rarer = ("swap-outs lost", "swap-ins lost", "kept while returning", "host copies dropped", "refused")
    upkeep = ("reclaimed", "moved", "shrunk", "resize")
    for events, least in ((common, 300), ((*rarer, *upkeep), 20)):
        for event in events:
            assert CoreMachine.events[event] >= least, event


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_million_checked_steps() -> None:
    """Other operations on every run; hypothesis prints how to repeat a failure."""
    assert run_machine(3600, derandomize=False) >= 1_000_000
