"""The loop of steps: stop rules, preemption and recompute, aborts at any moment, lost steps, counts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_engine.core.errors import BlocksLeaked, RequestTooLong
from infradoc_engine.core.request import Request
from infradoc_engine.core.scheduler.limits import SchedulerLimits
from infradoc_engine.core.scheduler.output import ScheduleOutput
from infradoc_engine.core.scheduler.scheduler import Scheduler

MakeScheduler = Callable[..., Scheduler]
MakeRequests = Callable[..., list[Request]]
RunStep = Callable[..., ScheduleOutput]


def run_all(scheduler: Scheduler, run_step: RunStep, limit: int = 5000) -> int:
    """Steps until nothing is left."""
    for steps in range(limit):
        if not scheduler.has_work():
            return steps
        run_step(scheduler)
    raise AssertionError(f"not finished after {limit} steps")


def test_a_preempted_request_that_hits_the_cache_goes_on_where_it_was(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    """nano-vllm #211: preempted, then found its own blocks again, and an index ran past the table."""
    scheduler = make_scheduler()
    request = make_requests(1, 7, max_tokens=6)[0]
    scheduler.add(request)
    run_step(scheduler)
    run_step(scheduler)  # 8 tokens computed: two full blocks; the newest token is the ninth
    known = request.tokens(0, 9)
    assert scheduler.preempt("r0")
    output = run_step(scheduler)
    item = output.scheduled[0]
    assert output.resumed == ["r0"] and [name for name, _ in output.preempted] == ["r0"]
    assert (item.start, item.token_ids, item.samples) == (8, known[8:], True)
    assert request.tokens(0, 9) == known and len(request.output_token_ids) == 3
    assert scheduler.stats.recomputed_tokens == 0 and scheduler.stats.resumed_hit_tokens == 8
    run_all(scheduler, run_step)
    assert len(request.output_token_ids) == 6


def test_recompute_counts_what_is_really_computed_again(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(prefix_caching=False)
    request = make_requests(1, 7, max_tokens=6)[0]
    scheduler.add(request)
    run_step(scheduler)
    run_step(scheduler)
    scheduler.preempt("r0", "resize")
    assert request.preemptions[0].lost_tokens == 8
    output = run_step(scheduler)
    assert len(output.scheduled[0].token_ids) == 9, "prompt and output, as one prefill"
    stats = scheduler.stats
    assert (stats.prompt_computed_tokens, stats.output_computed_tokens, stats.recomputed_tokens) == (7, 2, 8)
    assert stats.preemptions["resize"] == 1


@pytest.mark.parametrize(
    ("fields", "reason", "num_output"),
    [
        ({"stop_token_ids": frozenset({5})}, "stop", 1),
        ({"stop_token_ids": frozenset({5}), "ignore_eos": True}, "length", 6),
        ({"stop_token_ids": frozenset({5}), "min_tokens": 3}, "stop", 3),
        ({"stop_token_ids": frozenset({6})}, "length", 6),
        ({"max_tokens": 1}, "length", 1),
        ({"max_tokens": 100}, "length", 10),
    ],
)
def test_stop_rules(
    make_scheduler: MakeScheduler, run_step: RunStep, fields: dict[str, int], reason: str, num_output: int
) -> None:
    scheduler = make_scheduler(max_model_len=20)
    request = Request("r", list(range(100, 110)), **{"max_tokens": 6, **fields})  # type: ignore[arg-type]
    scheduler.add(request)
    for _ in range(20):
        if scheduler.has_work():
            run_step(scheduler, repeat(5).__next__)
    assert (request.finish_reason, len(request.output_token_ids)) == (reason, num_output)
    assert request.state == "finished" and scheduler.get("r") is None
    assert scheduler.cache.ledger().live == 0


def test_update_reports_tokens_and_ends(make_scheduler: MakeScheduler, make_requests: MakeRequests) -> None:
    scheduler = make_scheduler()
    for request, max_tokens in zip(make_requests(2, 4), (1, 2), strict=True):
        request.max_tokens = max_tokens
        scheduler.add(request)
    output = scheduler.schedule()
    assert scheduler.update(output, {"r0": 11, "r1": 12}).tokens == [("r0", 11, "length"), ("r1", 12, None)]


@pytest.mark.parametrize(("max_model_len", "num_blocks", "longest"), [(20, 100, 19), (1000, 3, 11)])
def test_a_prompt_without_room_for_a_token_is_refused(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, max_model_len: int, num_blocks: int, longest: int
) -> None:
    scheduler = make_scheduler(num_blocks, max_model_len=max_model_len)
    scheduler.add(make_requests(1, longest)[0])
    with pytest.raises(RequestTooLong, match=f"{longest + 1} tokens") as caught:
        scheduler.add(make_requests(1, longest + 1, prefix="long")[0])
    assert (caught.value.prompt_tokens, caught.value.limit_tokens) == (longest + 1, longest)
    assert scheduler.num_waiting == 1


def test_leaked_blocks_are_not_held_against_the_prompt(
    make_scheduler: MakeScheduler, make_requests: MakeRequests
) -> None:
    scheduler = make_scheduler(4)
    scheduler.cache.leak(3)
    with pytest.raises(BlocksLeaked, match=r"3 of the 4 blocks .* POST /admin/defragment"):
        scheduler.add(make_requests(1, 4)[0])
    scheduler.add(make_requests(1, 3)[0])
    with pytest.raises(RequestTooLong):
        scheduler.add(make_requests(1, 16, prefix="long")[0])
    scheduler.cache.reclaim_leaked()
    scheduler.add(make_requests(1, 4, prefix="again")[0])


def test_requests_that_make_no_sense_are_refused(make_scheduler: MakeScheduler, make_requests: MakeRequests) -> None:
    scheduler = make_scheduler()
    scheduler.add(make_requests(1)[0])
    with pytest.raises(ValueError, match="in use"):
        scheduler.add(make_requests(1)[0])
    for empty in (Request("e", [], 1), Request("z", [1], 0)):
        with pytest.raises(ValueError, match="at least"):
            scheduler.add(empty)
    used = Request("u", [1], 1, state="finished")
    with pytest.raises(ValueError, match="before"):
        scheduler.add(used)
    assert scheduler.num_waiting == 1


def test_a_lone_request_that_fills_the_pool_ends_with_length(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(3)
    request = make_requests(1, 6, max_tokens=100)[0]
    scheduler.add(request)
    run_all(scheduler, run_step, 20)
    assert request.finish_reason == "length" and request.num_tokens == 13
    assert scheduler.stats.pool_exhausted == 1 and not request.preemptions


def test_growth_lets_it_go_on(make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep) -> None:
    scheduler = make_scheduler(3)
    request = make_requests(1, 6, max_tokens=30)[0]
    scheduler.add(request)
    for _ in range(5):
        run_step(scheduler)
    scheduler.cache.grow(10)
    run_all(scheduler, run_step, 40)
    assert len(request.output_token_ids) == 30 and scheduler.stats.pool_exhausted == 0


def test_leaked_blocks_end_who_needs_them_instead_of_blocking_the_queue(
    make_scheduler: MakeScheduler, make_requests: MakeRequests
) -> None:
    scheduler = make_scheduler(4)
    runs, waits = make_requests(2, 8, max_tokens=9)
    scheduler.limits.max_num_seqs = 1
    scheduler.add(runs)
    scheduler.add(waits)
    scheduler.update(scheduler.schedule(), {"r0": 1})
    scheduler.cache.pool.allocate()
    scheduler.cache.pool.allocate()  # no table has them: two blocks are left, both in use
    assert scheduler.schedule().finished == [("r0", "length")]
    waits.prompt_token_ids.append(1)
    assert scheduler.schedule().finished == [("r1", "error")]
    assert not scheduler.has_work() and scheduler.stats.pool_exhausted == 2
    assert scheduler.cache.audit().leaked == 2


@pytest.mark.parametrize("end", ["abort", "finish", "preempt"])
def test_an_end_between_schedule_and_update_is_passed_over(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, end: str
) -> None:
    scheduler = make_scheduler()
    a, b = make_requests(2, 8)
    scheduler.add(a)
    scheduler.add(b)
    output = scheduler.schedule()
    assert {"abort": scheduler.abort, "preempt": scheduler.preempt, "finish": lambda r: scheduler.finish(r, "stop")}[
        end
    ]("r0")
    scheduler.cache.check_integrity()
    update = scheduler.update(output, {"r0": 1, "r1": 2})
    assert update.tokens == [("r1", 2, None)] and not a.output_token_ids
    assert scheduler.cache.peek_hit_tokens(Request("x", a.prompt_token_ids, 1)) == 0, "its KV may not be there"
    scheduler.cache.check_integrity()


def test_an_id_used_again_during_the_step_is_another_request(
    make_scheduler: MakeScheduler, make_requests: MakeRequests
) -> None:
    scheduler = make_scheduler()
    scheduler.add(make_requests(1, 8)[0])
    output = scheduler.schedule()
    scheduler.abort("r0")
    again = make_requests(1, 8)[0]
    scheduler.add(again)
    assert scheduler.update(output, {"r0": 1}).tokens == []
    assert again.state == "waiting" and not again.output_token_ids


def test_a_lost_step_is_asked_for_again(make_scheduler: MakeScheduler, make_requests: MakeRequests) -> None:
    scheduler = make_scheduler()
    scheduler.add(make_requests(1, 8)[0])
    lost, again = scheduler.schedule(), scheduler.schedule()
    assert lost.scheduled == again.scheduled and scheduler.stats.steps == 0
    with pytest.raises(ValueError, match="scheduled last"):
        scheduler.update(lost, {"r0": 1})
    scheduler.update(again, {"r0": 1})
    with pytest.raises(ValueError, match="updated already"):
        scheduler.update(again, {"r0": 1})


def test_a_lost_copy_is_made_anew(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler()
    a, b = make_requests(2, 8, same_prompt=True)
    scheduler.add(a)
    run_step(scheduler)
    scheduler.add(b)
    lost = scheduler.schedule()
    again = run_step(scheduler)
    assert lost.block_copies and again.block_copies[0][0] == lost.block_copies[0][0]
    assert [(name, p.reason) for name, p in again.preempted] == [("r1", "fault")] and again.resumed == ["r1"]


def test_a_missing_token_changes_nothing(make_scheduler: MakeScheduler, make_requests: MakeRequests) -> None:
    scheduler = make_scheduler()
    a, b = make_requests(2, 8)
    scheduler.add(a)
    scheduler.add(b)
    output = scheduler.schedule()
    with pytest.raises(ValueError, match="no sampled token for request r1"):
        scheduler.update(output, {"r0": 1})
    assert not a.output_token_ids
    assert len(scheduler.update(output, {"r0": 1, "r1": 2}).tokens) == 2


def test_a_preemption_of_a_request_that_is_gone_is_not_reported(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler()
    for request in make_requests(2, 8):
        scheduler.add(request)
    run_step(scheduler)
    assert scheduler.preempt("r0") and scheduler.preempt("r1") and scheduler.abort("r1")
    assert [name for name, _ in run_step(scheduler).preempted] == ["r0"]
    assert run_step(scheduler).preempted == []


def test_unknown_ids_are_no_error(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler()
    assert not scheduler.abort("x") and not scheduler.finish("x", "stop") and not scheduler.preempt("x")
    assert not scheduler.has_work() and scheduler.schedule().scheduled == []


def test_abort_of_a_waiting_and_of_a_preempted_request(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(max_num_seqs=1)
    for request in make_requests(3, 8):
        scheduler.add(request)
    run_step(scheduler)
    scheduler.preempt("r0")
    assert scheduler.abort("r0") and scheduler.abort("r2") and not scheduler.abort("r2")
    assert [r.request_id for r in scheduler.waiting] == ["r1"]
    run_all(scheduler, run_step)
    assert scheduler.stats.finished == {"stop": 0, "length": 1, "abort": 2, "error": 0}


def test_nothing_is_kept_of_finished_requests(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(4)
    for request in make_requests(6, 6, max_tokens=6):
        scheduler.add(request)
    run_all(scheduler, run_step)
    lifecycle = scheduler._lifecycle
    assert scheduler.stats.preemptions["kv_full"] > 0
    assert not lifecycle.requests and not lifecycle.running and not lifecycle.lost_until
    assert scheduler.cache._prefix.num_chains == 0 and scheduler.cache.pool.num_used == 0


@given(
    sizes=st.lists(st.tuples(st.integers(1, 15), st.integers(1, 12)), min_size=1, max_size=12),
    num_blocks=st.integers(8, 12),
    budget=st.integers(1, 20),
    max_num_seqs=st.integers(1, 6),
    watermark=st.sampled_from([0.0, 0.1, 0.6]),
    flags=st.integers(0, 3),
)
def test_any_load_that_fits_ends_complete(
    make_scheduler: MakeScheduler,
    run_step: RunStep,
    sizes: list[tuple[int, int]],
    num_blocks: int,
    budget: int,
    max_num_seqs: int,
    watermark: float,
    flags: int,
) -> None:
    scheduler = make_scheduler(
        num_blocks,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        watermark=watermark,
        chunked_prefill=bool(flags & 1),
        prefix_caching=bool(flags & 2),
    )
    requests = [Request(f"r{i}", list(range(n)), max_tokens) for i, (n, max_tokens) in enumerate(sizes)]
    for request in requests:
        scheduler.add(request)
    admitted: list[str] = []
    executed = 0
    while scheduler.has_work():
        output = run_step(scheduler)
        admitted += output.admitted
        executed += output.num_prefill_tokens + output.num_decode_tokens
        assert output.step < 3000
    assert admitted == [request.request_id for request in requests], "first come, first admitted"
    assert all(len(r.output_token_ids) == r.max_tokens and r.finish_reason == "length" for r in requests)
    stats = scheduler.stats
    assert executed == stats.prompt_computed_tokens + stats.output_computed_tokens + stats.recomputed_tokens
    assert stats.generation_tokens == sum(r.max_tokens for r in requests)
    assert stats.prompt_tokens == sum(len(r.prompt_token_ids) for r in requests)
    if not any(r.preemptions for r in requests):
        assert stats.prompt_computed_tokens + stats.prefix_hit_tokens == stats.prompt_tokens
        assert stats.output_computed_tokens == stats.generation_tokens - len(requests), "the last token needs no KV"


@pytest.mark.parametrize(
    "bad",
    [
        {"max_num_seqs": -1},
        {"max_num_batched_tokens": 0},
        {"watermark": 1.0},
        {"watermark": float("nan")},
        {"max_model_len": 1},
    ],
)
def test_limits_with_which_nothing_runs_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        SchedulerLimits(**{"max_num_seqs": 1, "max_num_batched_tokens": 1, **bad})  # type: ignore[arg-type]
