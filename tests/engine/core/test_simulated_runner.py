"""The what-if simulator against times worked out by hand, and its promise that the same seed gives the same run."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from infradoc_engine.core.clock import VirtualClock
from infradoc_engine.core.kv_cache_manager import KVCacheManager
from infradoc_engine.core.request import Request
from infradoc_engine.core.scheduler.limits import SchedulerLimits
from infradoc_engine.core.scheduler.output import ScheduledRequest, ScheduleOutput
from infradoc_engine.core.scheduler.scheduler import Scheduler
from infradoc_engine.core.simulated_runner import RequestTimes, SimulatedRunner, Simulation, StepCosts

COSTS = StepCosts(step=0.5, prefill_token=0.01, decode_row=0.1)


def make_simulation(
    num_blocks: int = 64, seed: int = 0, *, host_blocks: int = 0, costs: StepCosts = COSTS, **limits: int
) -> tuple[Simulation, Scheduler, VirtualClock]:
    clock = VirtualClock()
    scheduler = Scheduler(
        SchedulerLimits(
            **{"max_num_seqs": 16, "max_num_batched_tokens": 256, **limits},
            preemption_mode="swap" if host_blocks else "recompute",
        ),
        KVCacheManager(num_blocks, 16, clock=clock, host_blocks=host_blocks),
        clock,
    )
    return Simulation(scheduler, SimulatedRunner(costs, clock, seed=seed), clock), scheduler, clock


def test_costs_add_up() -> None:
    costs = StepCosts(1.0, 0.1, 0.01, decode_context_token=0.001, prefill_context_token=0.0001, block_copy=5.0)
    output = ScheduleOutput(
        1,
        [
            ScheduledRequest("d", [1], 7, [0], True, False),
            ScheduledRequest("p", [1, 2, 3], 10, [1], False, True),
        ],
        block_copies=[(0, 1)],
    )
    assert costs.seconds(output) == pytest.approx(1.0 + 5.0 + 0.01 + 0.008 + 0.3 + 0.0001 * (11 + 12 + 13))


def test_a_swap_costs_its_bytes_over_the_bandwidth() -> None:
    costs = StepCosts(1.0, 0.1, 0.01, kv_block_bytes=1000, swap_bandwidth=4000.0)
    assert costs.seconds(ScheduleOutput(1, [], swap_out=[(0, 0), (1, 1)])) == pytest.approx(1.5)
    assert costs.seconds(ScheduleOutput(1, [], swap_in=[(0, 0)])) == pytest.approx(1.25)
    assert StepCosts(1.0, 0.1, 0.01).seconds(ScheduleOutput(1, [], swap_in=[(0, 0)])) == 1.0


def test_times_of_one_request_by_hand() -> None:
    simulation, _, clock = make_simulation()
    (times,) = simulation.run([Request("a", list(range(20)), 3, arrival_time=2.0)])
    assert times.ttft == pytest.approx(0.5 + 20 * 0.01)
    assert times.itl == pytest.approx([0.6, 0.6])
    assert times.e2e == pytest.approx(1.9) and clock.now() == pytest.approx(3.9)
    assert times.finish_reason == "length"


def test_requests_that_come_during_a_step_wait_for_its_end() -> None:
    simulation, _, _ = make_simulation()
    requests = [Request("a", [1] * 10, 2), Request("b", [2] * 10, 2, arrival_time=0.1)]
    first, second = simulation.run(requests)
    assert first.ttft == pytest.approx(0.6)
    assert second.ttft == pytest.approx(0.6 - 0.1 + 0.5 + 0.1 + 0.1)
    assert first.itl == pytest.approx([0.7])


def closed_loop(
    num_blocks: int, seed: int = 1, host_blocks: int = 0, costs: StepCosts = COSTS
) -> tuple[list[RequestTimes], Scheduler, float]:
    """16 clients, 16 to 32 tokens in and 24 to 48 out, for 100 virtual seconds."""
    simulation, scheduler, clock = make_simulation(num_blocks, host_blocks=host_blocks, costs=costs, max_model_len=128)
    rng = random.Random(seed)
    names = iter(range(10_000))

    def next_request() -> Request:
        prompt = [rng.randrange(50_000) for _ in range(rng.randint(16, 32))]
        return Request(f"c{next(names)}", prompt, rng.randint(24, 48), arrival_time=clock.now())

    times = simulation.run([next_request() for _ in range(16)], follow_up=lambda _: [next_request()], until=100.0)
    return times, scheduler, clock.now()


def test_the_same_seed_gives_the_same_run() -> None:
    (a, sa, ta), (b, sb, tb) = closed_loop(24), closed_loop(24)
    assert [t.token_times for t in a] == [t.token_times for t in b]
    assert [t.request.output_token_ids for t in a] == [t.request.output_token_ids for t in b]
    assert sa.stats == sb.stats and ta == tb


def test_a_small_pool_thrashes_and_growth_cures_it() -> None:
    small, thrashing, _ = closed_loop(24)
    large, calm, _ = closed_loop(96)
    assert thrashing.stats.preemptions["kv_full"] > 0 and thrashing.stats.recomputed_tokens > 0
    assert calm.stats.preemptions["kv_full"] == 0 and calm.stats.recomputed_tokens == 0
    assert calm.stats.generation_tokens > thrashing.stats.generation_tokens

    def median_ttft(times: list[RequestTimes]) -> float:
        known = sorted(t.ttft for t in times if t.ttft is not None)
        return known[len(known) // 2]

    assert median_ttft(large) < median_ttft(small)


def test_swaps_save_recomputes_while_the_copy_is_cheap() -> None:
    """The same load: recompute, swap over a fast link, swap over one so slow that it is the whole step."""
    dear = StepCosts(step=0.05, prefill_token=0.05, decode_row=0.01)
    fast, slow = (replace(dear, kv_block_bytes=1 << 20, swap_bandwidth=rate) for rate in (1e9, 1e6))
    _, recompute, _ = closed_loop(24, costs=dear)
    _, swap, _ = closed_loop(24, host_blocks=64, costs=fast)
    _, thrash, _ = closed_loop(24, host_blocks=64, costs=slow)
    assert recompute.stats.recomputed_tokens > 0 and recompute.stats.swapped_out_blocks == 0
    assert swap.stats.recomputed_tokens == 0 < swap.stats.swapped_in_blocks
    assert thrash.stats.generation_tokens < recompute.stats.generation_tokens < swap.stats.generation_tokens


def test_tokens_depend_on_seed_request_and_place_only() -> None:
    (roomy,), (tight,), (other,) = (
        make_simulation(64, seed=seed, max_num_batched_tokens=budget)[0].run([Request("a", list(range(40)), 20)])
        for seed, budget in ((0, 256), (0, 7), (1, 256))
    )
    assert roomy.request.output_token_ids == tight.request.output_token_ids
    assert roomy.request.output_token_ids != other.request.output_token_ids


def test_the_end_of_time_leaves_requests_open() -> None:
    simulation, scheduler, clock = make_simulation()
    (times,) = simulation.run([Request("a", [1], 100), Request("late", [1], 1, arrival_time=50.0)], until=3.0)
    assert times.e2e is None and times.finish_reason is None and scheduler.num_running == 1
    assert 3.0 <= clock.now() < 4.0


def test_a_closed_scheduler_is_an_error_not_an_endless_loop() -> None:
    simulation, _, _ = make_simulation(max_num_seqs=0)
    with pytest.raises(RuntimeError, match="max_num_seqs is 0"):
        simulation.run([Request("a", [1], 1)])
