"""Decodes: a place for each, turns when the budget is short, victims when blocks are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from infradoc_engine.core.request import Request
from infradoc_engine.core.scheduler.output import ScheduleOutput
from infradoc_engine.core.scheduler.scheduler import Scheduler

MakeScheduler = Callable[..., Scheduler]
MakeRequests = Callable[..., list[Request]]
RunStep = Callable[..., ScheduleOutput]


def names(output: ScheduleOutput) -> list[str]:
    return [item.request_id for item in output.scheduled]


def test_all_take_turns_when_the_budget_is_below_their_number(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(40)
    for request in make_requests(5, 4, max_tokens=50):
        scheduler.add(request)
    run_step(scheduler)
    scheduler.limits.max_num_batched_tokens = 2
    steps = [names(run_step(scheduler)) for _ in range(10)]
    assert steps[:4] == [["r0", "r1"], ["r2", "r3"], ["r0", "r4"], ["r1", "r2"]], "the oldest first among equals"
    assert Counter(name for step in steps for name in step) == dict.fromkeys(("r0", "r1", "r2", "r3", "r4"), 4)


def test_turns_survive_members_that_come_and_go(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(40, max_num_batched_tokens=100)
    for request in make_requests(4, 4, max_tokens=50):
        scheduler.add(request)
    run_step(scheduler)
    scheduler.limits.max_num_batched_tokens = 1
    assert [names(run_step(scheduler)) for _ in range(2)] == [["r0"], ["r1"]]
    scheduler.abort("r2")
    assert [names(run_step(scheduler)) for _ in range(3)] == [["r3"], ["r0"], ["r1"]]


def test_the_last_admitted_loses_its_blocks_and_says_why(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(3, prefix_caching=False)
    a, b, c = make_requests(3, 4, max_tokens=8)
    for request in (a, b, c):
        scheduler.add(request)
    run_step(scheduler)
    output = run_step(scheduler)
    assert [(name, p.reason, p.lost_tokens, p.for_request) for name, p in output.preempted] == [
        ("r2", "kv_full", 4, "r0"),
        ("r1", "kv_full", 4, "r1"),
    ]
    assert names(output) == ["r0"]
    assert [r.request_id for r in scheduler.waiting] == ["r1", "r2"], "the head is the one admitted first"
    assert c.preemptions[0] == output.preempted[0][1] and c.state == "waiting" and not c.block_table
    assert scheduler.stats.preemptions["kv_full"] == 2


def test_nobody_is_admitted_in_a_step_that_took_blocks(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(3, prefix_caching=False)
    a, b = make_requests(2, 4, max_tokens=8)
    b.prompt_token_ids += [1, 2, 3, 4]
    scheduler.add(a)
    scheduler.add(b)
    run_step(scheduler)
    output = run_step(scheduler)
    assert [name for name, _ in output.preempted] == ["r1"] and not output.resumed
    assert scheduler.cache.pool.num_available == 1


def test_a_request_that_is_its_own_victim_steps_back(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(2, prefix_caching=False)
    old, young = make_requests(2, 3, max_tokens=5)
    del old.prompt_token_ids[1:]
    scheduler.add(old)
    scheduler.add(young)
    for _ in range(2):
        run_step(scheduler)
    output = run_step(scheduler)  # young needs a second block, old still has room in its first
    assert [(name, p.for_request) for name, p in output.preempted] == [("r1", "r1")]
    assert names(output) == ["r0"]
    while scheduler.has_work():
        run_step(scheduler)
    assert len(old.output_token_ids) == len(young.output_token_ids) == 5
