"""Preemption by swap: out to host blocks, back without recompute, and what a lost step or an abort leaves behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infradoc_engine.core.request import Request
from infradoc_engine.core.scheduler.limits import SchedulerLimits
from infradoc_engine.core.scheduler.output import ScheduleOutput
from infradoc_engine.core.scheduler.scheduler import Scheduler

MakeScheduler = Callable[..., Scheduler]
MakeRequests = Callable[..., list[Request]]
RunStep = Callable[..., ScheduleOutput]


@pytest.fixture
def full(make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep) -> Scheduler:
    """Four blocks of 4, two requests of 8 computed tokens each: the next step needs a fifth block."""
    scheduler = make_scheduler(4, host_blocks=4)
    for request in make_requests(2, 8, max_tokens=4):
        scheduler.add(request)
    run_step(scheduler)
    return scheduler


def victim_of(scheduler: Scheduler) -> Request:
    request = scheduler.get("r1")
    assert request is not None
    return request


def step_until(scheduler: Scheduler, run_step: RunStep, found: Callable[[ScheduleOutput], object]) -> ScheduleOutput:
    for _ in range(50):
        output = run_step(scheduler)
        if found(output):
            return output
    raise AssertionError("it did not happen in 50 steps")


def to_swap_in(scheduler: Scheduler) -> ScheduleOutput:
    """Schedule the step that brings the victim back; it is not updated yet."""
    for _ in range(50):
        output = scheduler.schedule()
        if output.swap_in:
            return output
        scheduler.update(output, {item.request_id: 3 for item in output.scheduled if item.samples})
    raise AssertionError("nothing was swapped in")


def test_a_victim_comes_back_with_all_it_had_computed(full: Scheduler, run_step: RunStep) -> None:
    victim = victim_of(full)
    blocks = list(victim.block_table)
    known = victim.tokens(0, 9)
    output = run_step(full)
    assert output.swap_out == [(blocks[0], 0), (blocks[1], 1)] and not output.swap_in
    ((name, preemption),) = output.preempted
    assert (name, preemption.mode, preemption.lost_tokens, preemption.reason) == ("r1", "swap", 0, "kv_full")
    assert victim.num_computed_tokens == 8 and not victim.block_table and full.num_swapped == 1
    assert full.cache.host_usage_ratio == 0.5 and full.cache.host_free_blocks == 2
    full.cache.prefix_caching = full.limits.prefix_caching = False  # so that the prefix cache has nothing
    back = step_until(full, run_step, lambda output: output.resumed)
    assert back.swap_in == [(0, back.scheduled[0].block_table[0]), (1, back.scheduled[0].block_table[1])]
    item = back.scheduled[0]
    assert (item.request_id, item.start, item.token_ids, item.samples) == ("r1", 8, known[8:], True)
    assert full.num_swapped == 0 and full.cache.host_usage_ratio == 0.0
    step_until(full, run_step, lambda _: not full.has_work())
    stats = full.stats
    assert stats.recomputed_tokens == 0 and stats.preemptions["kv_full"] == 1
    assert (stats.swapped_out_requests, stats.swapped_in_requests) == (1, 1)
    assert (stats.swapped_out_blocks, stats.swapped_in_blocks) == (2, 2)
    assert (stats.swaps_refused, stats.swaps_lost) == (0, 0)


def test_blocks_that_the_prefix_cache_kept_are_shared_instead_of_copied(full: Scheduler, run_step: RunStep) -> None:
    blocks = list(victim_of(full).block_table)
    run_step(full)
    full.abort("r0")
    output = run_step(full)
    assert output.resumed == ["r1"] and output.scheduled[0].start == 8
    assert output.scheduled[0].block_table[0] == blocks[0]
    assert len(output.swap_in) == full.stats.swapped_in_blocks < 2


def test_without_room_on_the_host_the_victim_recomputes(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(4, host_blocks=1)
    for request in make_requests(2, 8):
        scheduler.add(request)
    run_step(scheduler)
    output = run_step(scheduler)
    assert [(p.mode, p.lost_tokens) for _, p in output.preempted] == [("recompute", 8)] and not output.swap_out
    assert scheduler.stats.swaps_refused == 1 and scheduler.cache.host_usage_ratio == 0.0


def test_recompute_mode_leaves_the_host_alone(full: Scheduler, run_step: RunStep) -> None:
    full.limits.preemption_mode = "recompute"
    output = run_step(full)
    assert [p.mode for _, p in output.preempted] == ["recompute"] and not output.swap_out
    assert full.stats.swaps_refused == 0
    with pytest.raises(ValueError, match="preemption_mode"):
        SchedulerLimits(1, 1, preemption_mode="drop")  # type: ignore[arg-type]


def test_blocks_in_flight_are_reserved_until_the_update(full: Scheduler) -> None:
    output = full.schedule()
    assert output.swap_out
    table = output.scheduled[0].block_table
    idle = [device for device, _ in output.swap_out if device not in table]
    assert len(idle) == 1 and full.cache.ledger().reserved == 1
    assert full.cache.audit().usage_ratio == full.cache.usage == 1.0
    full.update(output, {"r0": 1})
    assert full.cache.audit().reserved == 0 and full.cache.usage == 0.75
    output = to_swap_in(full)
    assert full.cache.audit().reserved == len(output.swap_in)
    full.abort("r1")
    assert full.cache.audit().reserved == len(output.swap_in), "the runner still writes them"
    full.update(output, {"r1": 1})
    assert full.cache.audit().reserved == 0


def test_a_lost_swap_out_becomes_a_recompute(full: Scheduler, run_step: RunStep) -> None:
    victim = victim_of(full)
    assert full.schedule().swap_out
    full.abandon_step()
    assert victim.preemptions[-1].mode == "recompute" and victim.preemptions[-1].lost_tokens == 8
    assert victim.num_computed_tokens == 0 and full.num_swapped == 0 and full.cache.host_usage_ratio == 0.0
    full.cache.check_integrity()
    assert full.stats.swaps_lost == 1 and full.stats.swapped_out_blocks == 0
    step_until(full, run_step, lambda _: not full.has_work())
    assert len(victim.output_token_ids) == 4


@pytest.mark.parametrize("told", [True, False])
def test_a_lost_swap_in_is_made_again_from_the_host_copy(full: Scheduler, run_step: RunStep, told: bool) -> None:
    victim = victim_of(full)
    lost = to_swap_in(full)
    assert full.num_swapped == 0 and full.cache.host_free_blocks == 2
    if told:
        full.abandon_step()
        assert full.num_swapped == 1 and not victim.block_table and full.cache.host_free_blocks == 2
    again = run_step(full)
    assert [host for host, _ in again.swap_in] == [host for host, _ in lost.swap_in]
    assert [(name, p.reason, p.mode, p.lost_tokens) for name, p in again.preempted] == [("r1", "fault", "swap", 0)]
    assert again.resumed == ["r1"] and full.stats.recomputed_tokens == 0 and full.stats.swaps_lost == 0


def test_a_swapped_in_request_that_is_preempted_at_once_keeps_its_host_copy(full: Scheduler, run_step: RunStep) -> None:
    victim = victim_of(full)
    output = to_swap_in(full)
    assert full.preempt("r1", "priority")
    assert (victim.preemptions[-1].mode, victim.num_computed_tokens, full.num_swapped) == ("swap", 8, 1)
    assert full.update(output, {"r1": 1}).tokens == []
    assert run_step(full).swap_in and victim.num_computed_tokens == 9


@pytest.mark.parametrize("moment", ["swapping out", "swapped", "swapping in"])
def test_an_abort_frees_the_host_blocks_once(full: Scheduler, run_step: RunStep, moment: str) -> None:
    if moment == "swapped":
        run_step(full)
        output = None
    else:
        output = full.schedule() if moment == "swapping out" else to_swap_in(full)
    assert full.cache.host_free_blocks == 2
    assert full.abort("r1") and not full.abort("r1")
    assert full.cache.host_free_blocks == 4
    full.cache.check_integrity()
    if output is not None:
        full.update(output, {item.request_id: 1 for item in output.scheduled})
    full.cache.check_integrity()
    assert full.cache.host_free_blocks == 4 and full.num_swapped == 0


def test_swapped_requests_stand_at_the_head_in_order_of_admission(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(6, host_blocks=8, max_num_seqs=3)
    for request in make_requests(4, 8, max_tokens=12):
        scheduler.add(request)
    step_until(scheduler, run_step, lambda _: scheduler.num_swapped == 2)
    assert [r.request_id for r in scheduler.waiting] == ["r1", "r2", "r3"]
    output = to_swap_in(scheduler)
    assert output.resumed[0] == "r1" and "r3" not in output.admitted
    scheduler.abandon_step()
    assert [r.request_id for r in scheduler.waiting] == ["r1", "r2", "r3"]


def test_a_prefill_under_way_is_swapped_with_the_part_it_has(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(6, host_blocks=4, max_num_batched_tokens=3)
    runs, comes = make_requests(2, 8, max_tokens=9)
    comes.prompt_token_ids += range(3)
    scheduler.add(runs)
    step_until(scheduler, run_step, lambda _: runs.num_computed_tokens == 9)
    scheduler.add(comes)
    output = step_until(scheduler, run_step, lambda output: output.swap_out)
    assert output.preempted[0][0] == "r1" and len(output.swap_out) == -(-comes.num_computed_tokens // 4)
    computed = comes.num_computed_tokens
    assert 0 < computed < 7
    scheduler.limits.max_num_batched_tokens = 1
    output = to_swap_in(scheduler)
    assert output.scheduled[-1].start == computed and len(comes.block_table) == 3
    scheduler.update(output, {item.request_id: 1 for item in output.scheduled if item.samples})
    hits = scheduler.cache.peek_hit_tokens(Request("same", comes.prompt_token_ids, 1))
    assert hits == 4 and comes.num_computed_tokens == computed + 1, "what is not computed yet must not be found"


def test_a_swap_can_come_without_tokens(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(4, host_blocks=4)
    short, long = make_requests(2, 8)
    del short.prompt_token_ids[5:]
    scheduler.add(short)
    scheduler.add(long)
    run_step(scheduler)
    scheduler.limits.max_num_batched_tokens = 1  # one decode a turn; the second one needs a block, and is the youngest
    assert [item.request_id for item in run_step(scheduler).scheduled] == ["r0"]
    output = run_step(scheduler)
    assert not output.scheduled and len(output.swap_out) == 2 and output.needs_runner
    assert scheduler.stats.swapped_out_blocks == 2


def test_another_cache_turns_swaps_into_recomputes(
    full: Scheduler, run_step: RunStep, make_scheduler: MakeScheduler
) -> None:
    victim = victim_of(full)
    run_step(full)
    bigger = make_scheduler(9, 2, host_blocks=3).cache
    with pytest.raises(ValueError, match="1 requests still have blocks"):
        full.replace_cache(bigger)
    assert full.preempt_all("resize") == 1 and full.num_running == 0
    full.replace_cache(bigger)
    assert full.cache is bigger and [r.request_id for r in full.waiting] == ["r0", "r1"]
    assert victim.preemptions[-1].mode == "recompute" and victim.preemptions[-1].lost_tokens == 8
    assert full.stats.swaps_lost == 1 and full.stats.preemptions["resize"] == 1
    output = run_step(full)
    assert output.resumed == ["r0"] and not output.swap_in
    step_until(full, run_step, lambda _: not full.has_work())
    assert len(victim.output_token_ids) == 4 and full.stats.recomputed_tokens == 9 + 8


def test_a_smaller_host_pool_makes_those_beyond_recompute(full: Scheduler, run_step: RunStep) -> None:
    victim = victim_of(full)
    run_step(full)
    with pytest.raises(ValueError, match="first r1"):
        full.cache.set_host_blocks(1)
    assert full.set_host_blocks(2) == 0 and full.num_swapped == 1
    assert full.set_host_blocks(1) == 1 and full.num_swapped == 0 and full.cache.host_blocks == 1
    assert victim.num_computed_tokens == 0 and victim.preemptions[-1].mode == "recompute"
    with pytest.raises(ValueError, match="-1"):
        full.set_host_blocks(-1)


def test_a_pause_stops_admission_and_nothing_else(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler()
    a, b = make_requests(2, 8)
    scheduler.add(a)
    run_step(scheduler)
    scheduler.pause()
    scheduler.add(b)
    while scheduler.num_running:
        assert [item.request_id for item in run_step(scheduler).scheduled] == ["r0"]
    assert len(a.output_token_ids) == 4 and scheduler.paused and scheduler.num_waiting == 1
    assert not run_step(scheduler).needs_runner
    scheduler.cache.defragment()  # an empty step is not under way
    scheduler.resume()
    assert run_step(scheduler).admitted == ["r1"]


def test_preempt_all_keeps_the_order(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(host_blocks=8)
    for request in make_requests(3, 8):
        scheduler.add(request)
    run_step(scheduler)
    assert scheduler.preempt_all() == 3 and scheduler.preempt_all() == 0
    assert [r.request_id for r in scheduler.waiting] == ["r0", "r1", "r2"]
    assert [(p.reason, p.mode) for _, p in run_step(scheduler).preempted] == [("resize", "recompute")] * 3
