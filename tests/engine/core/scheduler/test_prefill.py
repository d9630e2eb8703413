"""Admission and chunks of prompts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infradoc_engine.core.request import Request
from infradoc_engine.core.scheduler.output import ScheduleOutput
from infradoc_engine.core.scheduler.scheduler import Scheduler

MakeScheduler = Callable[..., Scheduler]
MakeRequests = Callable[..., list[Request]]
RunStep = Callable[..., ScheduleOutput]


def sizes(output: ScheduleOutput) -> dict[str, int]:
    return {item.request_id: len(item.token_ids) for item in output.scheduled}


def test_a_full_hit_still_computes_one_token(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    """nano-vllm #144: with all of the prompt cached, nothing was left to compute and nothing to sample from."""
    scheduler = make_scheduler()
    a, b = make_requests(2, 8, same_prompt=True)
    scheduler.add(a)
    run_step(scheduler)
    scheduler.add(b)
    output = run_step(scheduler)
    item = output.scheduled[-1]
    assert (item.request_id, item.token_ids, item.start, item.samples) == ("r1", [7], 7, True)
    assert output.block_copies == [(a.block_table[1], item.block_table[1])]
    assert b.num_cached_tokens == 7 and len(b.output_token_ids) == 1


def test_a_one_token_prompt_in_blocks_of_one_hits_and_computes(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(4, 1)
    for request in make_requests(2, 1, 1, same_prompt=True):
        scheduler.add(request)
        assert sizes(run_step(scheduler)) == {request.request_id: 1}
    assert scheduler.stats.prefix_hit_tokens == 0


def test_prompts_are_cut_to_the_budget(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(max_num_batched_tokens=6)
    for request in make_requests(2, 10):
        scheduler.add(request)
    assert sizes(run_step(scheduler)) == {"r0": 6}
    output = run_step(scheduler)
    assert sizes(output) == {"r0": 4, "r1": 2}
    assert [item.samples for item in output.scheduled] == [True, False]
    output = run_step(scheduler)
    assert [(item.request_id, item.is_prefill) for item in output.scheduled] == [("r0", False), ("r1", True)]
    assert sizes(output) == {"r0": 1, "r1": 5}


def test_the_table_covers_the_positions_and_no_more(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(max_num_batched_tokens=5)
    scheduler.add(make_requests(1, 10)[0])
    assert [len(run_step(scheduler).scheduled[0].block_table) for _ in range(2)] == [2, 3]


def test_without_chunks_a_prompt_waits_for_a_step_that_holds_it(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(max_num_batched_tokens=10, chunked_prefill=False)
    for request in make_requests(2, 10, max_tokens=2):
        scheduler.add(request)
    assert [sizes(run_step(scheduler)) for _ in range(3)] == [{"r0": 10}, {"r0": 1}, {"r1": 10}]


def test_without_chunks_a_prompt_longer_than_any_step_is_cut_all_the_same(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(max_num_batched_tokens=6, chunked_prefill=False)
    scheduler.add(make_requests(1, 10)[0])
    assert [sizes(run_step(scheduler)) for _ in range(2)] == [{"r0": 6}, {"r0": 4}]


def test_who_does_not_fit_holds_up_those_behind(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(num_blocks=4)
    small, large, tiny = (make_requests(1, n, prefix=p)[0] for n, p in ((7, "small"), (15, "large"), (2, "tiny")))
    for request in (small, large, tiny):
        scheduler.add(request)
    assert run_step(scheduler).admitted == ["small0"]
    assert [r.request_id for r in scheduler.waiting] == ["large0", "tiny0"]


def test_max_num_seqs_and_its_change(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(20, max_num_seqs=3)
    for request in make_requests(5, 4, max_tokens=3):
        scheduler.add(request)
    assert run_step(scheduler).admitted == ["r0", "r1", "r2"]
    scheduler.limits.max_num_seqs = 1
    assert sizes(run_step(scheduler)) == {"r0": 1, "r1": 1, "r2": 1}, "those that run go on"
    run_step(scheduler)
    assert scheduler.num_running == 0
    assert run_step(scheduler).admitted == ["r3"]
    scheduler.limits.max_num_seqs = 2
    assert run_step(scheduler).admitted == ["r4"]


def test_zero_seqs_drains(make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep) -> None:
    scheduler = make_scheduler()
    for request in make_requests(2, 4, max_tokens=2):
        scheduler.add(request)
        run_step(scheduler)
        scheduler.limits.max_num_seqs = 0
    assert run_step(scheduler).scheduled == []
    assert (scheduler.num_running, scheduler.num_waiting) == (0, 1)


@pytest.mark.parametrize(("watermark", "admitted"), [(0.0, 4), (0.25, 3), (0.5, 2), (0.9, 1)])
def test_watermark_holds_admission_but_never_the_only_request(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep, watermark: float, admitted: int
) -> None:
    scheduler = make_scheduler(8, watermark=watermark)
    for request in make_requests(5, 8):
        scheduler.add(request)
    assert len(run_step(scheduler).admitted) == admitted


def test_two_prompts_of_one_step_keep_their_own_blocks(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler()
    a, b = make_requests(2, 8, same_prompt=True)
    scheduler.add(a)
    scheduler.add(b)
    output = run_step(scheduler)
    assert sizes(output) == {"r0": 8, "r1": 8} and not output.block_copies
    assert not set(a.block_table) & set(b.block_table)
    assert scheduler.cache.pool.hash_of(a.block_table[0]) and not scheduler.cache.pool.hash_of(b.block_table[0])


def test_prefix_caching_can_be_switched_while_running(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(20)
    requests = make_requests(4, 9, same_prompt=True)
    hits = []
    for request, caching in zip(requests, (True, True, False, True), strict=True):
        scheduler.limits.prefix_caching = caching
        scheduler.add(request)
        run_step(scheduler)
        hits.append(request.num_cached_tokens)
    assert hits == [0, 8, 0, 0], "what was forgotten stays forgotten"
    assert scheduler.stats.prefix_queried_tokens == 27 and scheduler.stats.prefix_hit_tokens == 8
