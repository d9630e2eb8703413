"""Which graph runs, what a capture that finds no memory leaves, when graphs are made anew; on a GPU, equal tokens.

Without a GPU a capture here keeps the computation and a replay runs it: all but the device's own recording is real.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from infradoc_engine.core.scheduler.output import ScheduledRequest
from infradoc_engine.cuda_graphs import DecodeGraphs, GraphCost, graph_cost, refused_memory
from infradoc_engine.gpu_check.random_model import TINY, RandomModel
from infradoc_engine.graph_keeper import GraphKeeper
from infradoc_engine.kv_cache import KVCache
from infradoc_engine.memory import NotEnoughMemory
from infradoc_engine.model_runner import ModelRunner
from infradoc_engine.sampler import SamplingParams

VOCAB = 50
CPU = torch.device("cpu")
PROMPTS = [[5 + i * 7 % 250 + j * 3 % 40 for j in range(3 + 9 * i)] for i in range(7)]


class Echo:
    """A model whose logits tell token, position and slot of each row, from the buffers that a graph reads."""

    config = SimpleNamespace(vocab_size=VOCAB)

    def step(self, positions: torch.Tensor, slots: torch.Tensor, block_size: int, plan: Any) -> Any:
        return positions, slots, plan

    def forward(self, token_ids: torch.Tensor, step: Any, layers: Any, rows: torch.Tensor) -> torch.Tensor:
        positions, slots, plan = step
        layers[0][0].view(-1)[slots[slots >= 0]] += 1  # what a step writes
        told = (token_ids * 7 + positions * 3 + plan.context_lens) % VOCAB
        return torch.nn.functional.one_hot(told[rows], VOCAB).float()


class Kept(DecodeGraphs):
    """Captures by keeping the computation. `room`: so many captures find memory."""

    room = 99
    captured: list[int]

    def _capture(self, size: int) -> GraphCost:
        self.captured = [*getattr(self, "captured", []), size]
        if self.room < len(self.captured):
            raise RuntimeError("operation failed due to a previous error during capture") from torch.OutOfMemoryError(
                "CUDA out of memory"
            )
        self._compute(size)  # as the warm-up before a capture does
        graph: Any = SimpleNamespace(replay=lambda: self._compute(size))
        self._graphs[size] = graph
        return GraphCost(10, 4)


def make(max_batch: int = 20, room: int = 99) -> Kept:
    config = replace(TINY, num_layers=1, num_kv_heads=1, head_dim=2)
    graphs = Kept(Echo(), KVCache(config, 40, 4, torch.float32, CPU), max_batch=max_batch, max_model_len=64)  # type: ignore[arg-type]
    for part in graphs._cache.layers[0]:
        part.zero_()
    graphs.room = room
    return graphs


def rows(count: int, start: int = 5) -> list[ScheduledRequest]:
    return [
        ScheduledRequest(str(i), [i + 1], start + i, [2 * i, 2 * i + 1, *range(30)], True, False) for i in range(count)
    ]


def told(requests: list[ScheduledRequest]) -> list[int]:
    return [(r.token_ids[0] * 7 + r.start * 3 + r.start + 1) % VOCAB for r in requests]


def test_steps_run_in_the_smallest_graph_and_only_rows_of_requests_count() -> None:
    graphs = make()
    for count in (1, 3, 9, 20, 2):
        requests = rows(count)
        size = graphs.size_for(requests)
        assert size == {1: 1, 3: 4, 9: 16, 20: 20, 2: 2}[count]
        decoded = graphs.run(requests, size)
        assert decoded.best.tolist() == told(requests) and decoded.logits.argmax(-1).tolist() == told(requests)
    assert graphs.captured == [20, 16, 8, 4, 2, 1]  # once, the largest first
    assert graphs.size_for(rows(21)) is None


def test_captures_write_no_kv_and_replays_only_the_requests() -> None:
    graphs = make()
    graphs.capture()
    assert float(graphs._cache.layers[0][0].abs().sum()) == 0.0
    graphs.run(rows(3), 4)
    assert float(graphs._cache.layers[0][0].sum()) == 3.0


def test_prefill_and_steps_that_do_not_sample_have_no_graph() -> None:
    graphs = make()
    assert graphs.size_for([ScheduledRequest("a", [1, 2], 0, [0], True, True)]) is None
    assert graphs.size_for([*rows(1), ScheduledRequest("b", [1], 0, [0], False, True)]) is None
    assert not graphs.sizes  # nothing was captured for that


def test_without_memory_for_all_sizes_the_larger_ones_serve() -> None:
    graphs = make(room=2)
    assert graphs.size_for(rows(1)) == 16 and graphs.sizes == (16, 20)
    assert graphs.run(rows(1), 16).best.tolist() == told(rows(1))
    none = make(room=0)
    assert none.size_for(rows(1)) is None and none.size_for(rows(1)) is None
    assert none.captured == [20]  # not tried again at every step


def test_other_faults_of_a_capture_go_up_and_the_next_step_runs_eagerly() -> None:
    graphs = make()
    graphs._capture = lambda size: 1 // 0  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        graphs.size_for(rows(1))
    assert graphs.size_for(rows(1)) is None


def test_forgetting_captures_anew_and_the_cost_is_that_of_all() -> None:
    graphs = make(max_batch=4)
    static = graphs.cost
    assert static.num_bytes == static.in_torch > 0
    graphs.capture()
    assert graphs.cost == static + GraphCost(30, 12)
    graphs.forget()
    assert graphs.cost == static and graphs.sizes == ()
    assert graphs.size_for(rows(2)) == 2 and graphs.captured == [4, 2, 1, 4, 2, 1]


def test_the_ladder_costs_the_largest_and_one_more_for_each_other() -> None:
    assert graph_cost(GraphCost(100, 80), GraphCost(7, 2), 5) == GraphCost(128, 88)
    assert graph_cost(GraphCost(100, 80), GraphCost(100, 80), 1) == GraphCost(100, 80)


def test_a_refusal_is_known_by_what_it_came_from() -> None:
    try:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        except RuntimeError:
            raise RuntimeError("operation failed due to a previous error during capture")  # noqa: B904
    except RuntimeError as error:
        assert refused_memory(error)
    assert not refused_memory(RuntimeError("operation not permitted when stream is capturing"))


def test_on_the_cpu_there_are_none() -> None:
    runner = ModelRunner(RandomModel(TINY, torch.float32, CPU), device="cpu", max_model_len=64, max_num_seqs=2)
    assert runner._graphs.rows == 0 and runner.memory_account()["graphs"] == 0
    runner.set_eager(True)
    runner.set_eager(False)
    assert runner._graphs.decode(rows(1)) is None and runner.graph_steps == 0


def test_rows_follow_the_knobs() -> None:
    budget: Any = SimpleNamespace(device=torch.device("cuda"), limits=SimpleNamespace(max_num_seqs=16))
    assert GraphKeeper(budget, eager=False, max_batch=64).rows == 16
    assert GraphKeeper(budget, eager=False, max_batch=8).rows == 8
    assert GraphKeeper(budget, eager=True, max_batch=8).rows == 0
    assert GraphKeeper(budget, eager=False, max_batch=0).rows == 0


# -- on a GPU ------------------------------------------------------------------------------------------------------


def on_gpu(**settings: Any) -> ModelRunner:
    files = RandomModel(TINY, torch.float32, torch.device("cuda"))
    fixed = {"block_size": 16, "max_num_seqs": 8, "max_model_len": 128, "max_num_batched_tokens": 256}
    return ModelRunner(files, device="cuda", dtype="float32", **(fixed | settings))


@pytest.mark.gpu
def test_graphs_give_the_tokens_of_eager_steps(drive: Callable[..., Any]) -> None:
    runner = on_gpu()
    assert runner.memory_account()["graphs"] > 0
    eager = on_gpu(enforce_eager=True)
    expected = drive(eager, PROMPTS, 20).tokens
    assert eager.graph_steps == 0
    result = drive(runner, PROMPTS, 20)
    assert result.tokens == expected and 0 < runner.graph_steps < result.steps
    runner.set_eager(True)
    before = runner.graph_steps
    assert drive(runner, PROMPTS, 20).tokens == expected and runner.graph_steps == before
    runner.set_eager(False)
    assert drive(runner, PROMPTS, 20).tokens == expected and runner.graph_steps > before


@pytest.mark.gpu
def test_graphs_follow_the_pool(drive: Callable[..., Any]) -> None:
    runner = on_gpu(kv_pool_tokens=512)
    expected = drive(runner, PROMPTS, 20).tokens
    for change in (lambda: runner.grow_kv(64), lambda: runner.shrink_kv(40), lambda: runner.rebuild_kv(32, 20)):
        change()
        before = runner.graph_steps
        assert drive(runner, PROMPTS, 20).tokens == expected and runner.graph_steps > before


@pytest.mark.gpu
def test_seeded_sampling_is_the_same_with_graphs(drive: Callable[..., Any]) -> None:
    params = SamplingParams(temperature=1.2, seed=5, top_p=0.9, logprobs=2)
    results = []
    for eager in (False, True):
        runner = on_gpu(enforce_eager=eager)
        results.append(drive(runner, PROMPTS, 12, params=params).tokens)
    assert results[0] == results[1]


@pytest.mark.gpu
def test_a_step_does_not_wait_for_the_device() -> None:
    runner = on_gpu()
    requests = [ScheduledRequest("a", [3], 0, [0], True, False), ScheduledRequest("b", [4], 0, [1], True, False)]
    for eager in (False, True):
        runner.set_eager(eager)
        runner.logits(requests)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            runner.logits(requests)
        finally:
            torch.cuda.set_sync_debug_mode("default")


HOLD = """
import sys
import torch
free, total = torch.cuda.mem_get_info()
held = torch.empty(int(free - {left}), dtype=torch.uint8, device="cuda")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.gpu
def test_a_start_beside_another_process_is_refused_with_what_fits() -> None:
    """The account names what the other holds; the first of the offered settings starts."""
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(left=6 << 30)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None and other.stdout.readline().strip() == "held"
        with pytest.raises(NotEnoughMemory) as caught:
            on_gpu(gpu_memory_utilization=0.5)
        error = caught.value
        assert "\n" not in str(error) and str(error).endswith(".")
        assert error.account["other"] > 1 << 30 and "gpu_memory_utilization" in error.fits
        share = min(error.fits["gpu_memory_utilization"] + 0.02, 1.0)
        assert on_gpu(gpu_memory_utilization=share).num_blocks > 0
    finally:
        other.communicate("", timeout=60)
