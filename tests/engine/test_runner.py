"""The runner on a tiny model: schedules, growth, limits. The real model is in test_runner_reference.py."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from infradoc_engine import budget
from infradoc_engine.core.scheduler.output import ScheduledRequest, ScheduleOutput
from infradoc_engine.memory import NotEnoughMemory
from infradoc_engine.model_runner import ModelRunner
from infradoc_engine.sampler import SamplingParams
from infradoc_engine.weights import open_model

PROMPTS = [[5 + i * 7 % 250 + j * 3 % 40 for j in range(3 + 9 * i)] for i in range(7)]


@pytest.fixture
def runner(tiny_gguf: Callable[..., Path]) -> ModelRunner:
    return ModelRunner(
        open_model(tiny_gguf()), block_size=4, max_num_seqs=8, max_model_len=128, max_num_batched_tokens=256
    )


def test_schedules_of_all_kinds_give_the_same_tokens(runner: ModelRunner, drive: Callable[..., Any]) -> None:
    alone = drive(runner, PROMPTS, 20, one_by_one=True, prefix_caching=False).tokens
    assert len({tuple(tokens) for tokens in alone.values()}) > 3
    assert drive(runner, PROMPTS, 20).tokens == alone
    chunked = drive(runner, PROMPTS, 20, max_num_batched_tokens=9)
    assert chunked.tokens == alone and chunked.mixed_steps
    for caching in (True, False):
        small = drive(runner, PROMPTS, 20, num_blocks=24, prefix_caching=caching)
        assert small.tokens == alone and small.preemptions


def test_seeded_draws_survive_preemption(runner: ModelRunner, drive: Callable[..., Any]) -> None:
    params = SamplingParams(temperature=1.5, seed=11, top_p=0.95)
    free = drive(runner, PROMPTS, 20, params=params).tokens
    for name in free:
        runner.release(name)
    small = drive(runner, PROMPTS, 20, params=params, num_blocks=24)
    assert small.preemptions and small.tokens == free


def test_rows_that_do_not_sample_give_no_token(runner: ModelRunner) -> None:
    parts = [
        ScheduledRequest("half", [3, 4, 5], 0, [0], False, True),
        ScheduledRequest("whole", [3, 4], 0, [1], True, True),
    ]
    assert set(runner.execute(ScheduleOutput(0, parts), {})) == {"whole"}
    assert runner.execute(ScheduleOutput(1, parts[:1]), {}) == {}
    assert runner.execute(ScheduleOutput(2, []), {}) == {}


def test_swap_space_is_bounded_by_the_host(runner: ModelRunner) -> None:
    """Pages count when they are touched, so the allocator itself would hand out terabytes, block by block."""
    with pytest.raises(NotEnoughMemory, match="host memory are available; at most --swap-space") as refused:
        runner.set_host_blocks(runner.host_blocks_for(1 << 60))
    assert 0 < refused.value.fits["swap_space"] < 1 << 60 and runner.num_host_blocks == 0


def test_a_new_pool_stands_though_its_host_tier_finds_no_room(
    runner: ModelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner.set_host_blocks(4)
    monkeypatch.setattr(budget, "available_bytes", lambda: 0)
    runner.rebuild_kv(8, 40)
    assert (runner.block_size, runner.num_blocks, runner.num_host_blocks) == (8, 40, 0)


def test_copied_block_serves_a_second_request(runner: ModelRunner) -> None:
    """Copy-on-write: the copy is made before this step writes, so both go on from the same past."""
    first = runner.execute(ScheduleOutput(0, [ScheduledRequest("a", [9, 8, 7], 0, [0], True, True)]), {})["a"]
    parts = [
        ScheduledRequest("a", [first.token_id], 3, [0], True, False),
        ScheduledRequest("b", [first.token_id], 3, [6], True, False),
    ]
    both = runner.execute(ScheduleOutput(1, parts, block_copies=[(0, 6)]), {})
    assert both["a"].token_id == both["b"].token_id


def test_growth_between_steps(runner: ModelRunner) -> None:
    prompt = list(range(10, 30))
    before = ScheduledRequest("a", prompt, 0, [0, 1, 2, 3, 4], True, True)
    first = runner.execute(ScheduleOutput(0, [before]), {"a": SamplingParams(0.0)})["a"].token_id
    step = ScheduledRequest("a", [first], 20, [0, 1, 2, 3, 4, 5], True, False)
    expected = runner.execute(ScheduleOutput(1, [step]), {})
    old, account = runner.num_blocks, runner.memory_account()
    runner.grow_kv(old + 50)
    assert runner.num_blocks == old + 50
    assert runner.memory_account()["kv"] - account["kv"] == 50 * 4 * runner.kv_bytes_per_token()
    assert runner.execute(ScheduleOutput(1, [step]), {}) == expected
    far = ScheduledRequest("b", prompt, 0, list(range(old + 45, old + 50)), True, True)
    assert runner.execute(ScheduleOutput(2, [far]), {})["b"].token_id == first


def test_growth_that_cannot_be_is_refused_whole(runner: ModelRunner) -> None:
    old = runner.num_blocks
    with pytest.raises(NotEnoughMemory, match=r"No memory for a KV pool of \d+ tokens: .*; at most \d+ tokens fit\."):
        runner.grow_kv(1 << 40)
    with pytest.raises(ValueError, match="cannot shrink"):
        runner.grow_kv(old - 1)
    assert runner.num_blocks == old
    part = ScheduledRequest("a", [1, 2], 0, [old - 1], True, True)
    assert runner.execute(ScheduleOutput(0, [part]), {})


def test_account_names_all_parts(runner: ModelRunner) -> None:
    account = runner.memory_account()
    assert set(account) == {"weights", "kv", "activations", "graphs", "other"}
    assert account["kv"] == runner.num_blocks * 4 * runner.kv_bytes_per_token()
    assert account["weights"] > 128_000 and account["activations"] >= 0 and account["graphs"] == 0


def test_pool_by_default_holds_all_sequences(runner: ModelRunner) -> None:
    assert runner.num_blocks == 8 * 128 // 4


def test_runs_on_a_thread_of_its_own(runner: ModelRunner) -> None:
    """inference_mode is per thread: growth and steps must not depend on the thread that built the runner."""
    out: list[Any] = []

    def work() -> None:
        part = ScheduledRequest("a", [1, 2, 3, 4, 5], 0, [0, 1], True, True)
        out.append(runner.execute(ScheduleOutput(0, [part]), {}))
        runner.grow_kv(runner.num_blocks + 1)
        out.append(runner.execute(ScheduleOutput(1, [part]), {}))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(out) == 2 and out[0] == out[1]


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"max_model_len": 257}, ValueError, "256 positions; use at most --max-model-len 256"),
        ({"max_num_seqs": 0}, ValueError, "max_num_seqs is 0"),
        ({"block_size": 0}, ValueError, "block_size is 0"),
        ({"gpu_memory_utilization": 1.5}, ValueError, "gpu_memory_utilization is 1.5"),
        ({"dtype": "int3"}, ValueError, "dtype 'int3' is not known"),
        ({"kv_pool_tokens": 64, "max_model_len": 100}, NotEnoughMemory, "cannot hold one request of max_model_len 100"),
    ],
)
def test_settings_that_cannot_be(
    tiny_gguf: Callable[..., Path], settings: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        ModelRunner(open_model(tiny_gguf()), **{"max_model_len": 128, **settings})
    assert "\n" not in str(caught.value)


def test_pool_too_small_names_settings_that_do_fit(tiny_gguf: Callable[..., Path]) -> None:
    files = open_model(tiny_gguf())
    with pytest.raises(NotEnoughMemory) as caught:
        ModelRunner(files, kv_pool_tokens=64, max_model_len=100)
    assert caught.value.fits == {"kv_pool_tokens": 112, "max_model_len": 64}
    for knob, value in caught.value.fits.items():
        assert ModelRunner(files, **{"kv_pool_tokens": 64, "max_model_len": 100, knob: value}).num_blocks


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_agrees_with_cpu(tiny_gguf: Callable[..., Path], drive: Callable[..., Any]) -> None:
    files = open_model(tiny_gguf())
    runs = [
        drive(ModelRunner(files, device=name, dtype="float32", block_size=4, max_model_len=128), PROMPTS, 20).tokens
        for name in ("cpu", "cuda")
    ]
    assert runs[0] == runs[1]
