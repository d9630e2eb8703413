"""Real limits, each in a process of its own; and the arithmetic of the pool."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from infradoc_engine import memory
from infradoc_engine.budget import MemoryBudget
from infradoc_engine.memory import (
    NotEnoughMemory,
    available_bytes,
    status_bytes,
)
from infradoc_engine.pool_size import PoolRequest, size_pool
from infradoc_engine.refusals import is_out_of_memory
from infradoc_engine.runner_limits import RunnerLimits
from infradoc_engine.weights.config import ModelConfig

MIB = 1 << 20
linux = pytest.mark.skipif(status_bytes("VmData") is None, reason="needs /proc")

ASK = PoolRequest(
    device_bytes=1000 * MIB,
    utilization=0.9,
    weight_bytes=500 * MIB,
    activation_bytes=50 * MIB,
    other_bytes=50 * MIB,
    bytes_per_token=MIB // 16,
    block_size=16,
    max_model_len=1024,
    max_num_seqs=100,
    pool_tokens=None,
)


def in_child(code: str) -> Any:
    """Runs code in a fresh interpreter; it prints one line of JSON last."""
    prelude = "import json\nimport torch\ntorch.set_num_threads(1)\n"
    done = subprocess.run(
        [sys.executable, "-P", "-c", prelude + code], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_pool_takes_what_is_left() -> None:
    assert size_pool(ASK) == 300  # 1000 * 0.9 - 600 MiB, one MiB a block
    assert size_pool(replace(ASK, max_num_seqs=2)) == 128  # more would never be used
    assert size_pool(replace(ASK, pool_tokens=1600)) == 100
    assert sum(ASK.account().values()) == 900 * MIB


@pytest.mark.parametrize(
    "change",
    [
        {"weight_bytes": 790 * MIB},
        {"weight_bytes": 900 * MIB},
        {"pool_tokens": 16 * 400},
        {"pool_tokens": 1000},
        {"pool_tokens": 10},
    ],
)
def test_refusals_offer_settings_that_fit(change: dict[str, int]) -> None:
    ask = replace(ASK, **change)
    with pytest.raises(NotEnoughMemory) as caught:
        size_pool(ask)
    error = caught.value
    assert error.fits and "\n" not in str(error) and str(error).endswith(".")
    assert error.account["weights"] == ask.weight_bytes
    names = {"device_memory_bytes": "device_bytes", "kv_pool_tokens": "pool_tokens"}
    for knob, value in error.fits.items():
        shown = f"{value // MIB}MiB" if knob == "device_memory_bytes" else value
        assert f"--{knob.replace('_', '-')} {shown}" in str(error)
        size_pool(replace(ask, **{names.get(knob, knob): value}))  # does fit


@linux
def test_peak_is_what_was_touched_even_if_freed() -> None:
    peaks = in_child("""
from infradoc_engine.memory import measure_peak
MIB = 1 << 20
def touched():
    torch.ones(20 * MIB // 4)
def mapped():
    torch.empty(200 * MIB // 4)
print(json.dumps([measure_peak(touched), measure_peak(mapped), measure_peak(touched)]))
""")
    assert 18 * MIB < peaks[0] < 40 * MIB and 18 * MIB < peaks[2] < 40 * MIB
    assert peaks[1] < 5 * MIB


def test_available_is_positive_and_below_the_host() -> None:
    assert 0 < available_bytes() < 1 << 50


def test_the_present_pool_can_be_had_again_whatever_others_took(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ModelConfig("llama", 32, 3, 4, 2, 8, 48, 100, 1e4, 128, 1e-5, True)
    limits = RunnerLimits(64, 2, 64)
    budget = MemoryBudget(
        config, torch.float32, torch.device("cpu"), device_memory_bytes=None, utilization=0.9, limits=limits
    )
    budget.device_bytes = 1000 * MIB
    budget.weight_bytes, budget.graph_bytes = 100 * MIB, 200 * MIB
    budget.kv_bytes = 1000 * 16 * budget.bytes_per_token
    monkeypatch.setattr(budget, "other_bytes", lambda: 5000 * MIB)
    assert budget.plan_pool(16_000, 16) == 1000
    with pytest.raises(NotEnoughMemory):
        budget.plan_pool(16_016, 16)


@pytest.mark.parametrize("version", [1, 2])
def test_a_control_group_counts_without_its_cached_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    folder, key = (tmp_path / "memory", "total_inactive_file") if version == 1 else (tmp_path, "inactive_file")
    folder.mkdir(exist_ok=True)
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if version == 1 else ("memory.max", "memory.current")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    monkeypatch.setattr(memory, "_host_available", lambda: 1000)
    for limit, used, expected in (("600", "500", 130), ("600", "700", 0), ("5000", "500", 1000), ("max", "500", 1000)):
        (folder / names[0]).write_text(limit + "\n")
        (folder / names[1]).write_text(used + "\n")
        (folder / "memory.stat").write_text(f"cache 80\n{key} 30\n")
        assert available_bytes() == expected


def test_refused_allocations_are_told_from_other_faults() -> None:
    with pytest.raises(RuntimeError) as torch_error:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(torch_error.value)
    with pytest.raises(MemoryError) as numpy_error:
        np.empty(1 << 60, dtype=np.uint8)
    assert is_out_of_memory(numpy_error.value)
    assert not is_out_of_memory(RuntimeError("shape mismatch")) and not is_out_of_memory(ValueError("out of memory"))


@linux
def test_limit_makes_torch_itself_raise_and_recover() -> None:
    result = in_child("""
from infradoc_engine.memory import MemoryLimit
from infradoc_engine.refusals import is_out_of_memory
MIB = 1 << 20
with MemoryLimit(200 * MIB) as limit:
    held = torch.empty(150 * MIB, dtype=torch.uint8)
    used = limit.used_bytes()
    try:
        torch.empty(100 * MIB, dtype=torch.uint8)
        refused = False
    except RuntimeError as error:
        refused = is_out_of_memory(error)
    del held
    again = torch.empty(100 * MIB, dtype=torch.uint8).numel()
after = torch.empty(400 * MIB, dtype=torch.uint8).numel()
print(json.dumps([used, refused, again, after]))
""")
    used, refused, again, after = result
    assert 149 * MIB < used < 160 * MIB
    assert refused is True and again == 100 * MIB and after == 400 * MIB


@linux
def test_a_full_device_leaves_the_host_its_memory() -> None:
    """What a front end needs, over and over: buffers that requests are read into, answers, small objects."""
    read, answers, objects, refused = in_child("""
import mmap
from infradoc_engine.memory import MIB, MemoryLimit
with MemoryLimit(200 * MIB):
    held = []
    for size in (16 * MIB, 2 * MIB):
        try:
            while True:
                held.append(torch.empty(size, dtype=torch.uint8))
        except RuntimeError:
            pass
    try:
        while True:  # and what no tensor of a step would take: page by page
            held.append(mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE))
    except OSError:
        pass
    read = sum(len(bytearray(64 * 1024)) for _ in range(200))
    answers = [bytes(900_000) for _ in range(16)]
    objects = [(number, [number]) for number in range(60_000)]
    try:
        torch.empty(3 * MIB, dtype=torch.uint8)
        refused = False
    except RuntimeError:
        refused = True
print(json.dumps([read, len(answers), len(objects), refused]))
""")
    assert read == 200 * 65536 and answers == 16 and objects == 60_000
    assert refused  # what is set aside is not the device's


@linux
def test_room_that_cannot_be_opened_does_not_stay_open() -> None:
    """Reading how much is mapped may itself find no memory."""
    before, after = in_child("""
import resource
from infradoc_engine import memory
def none_left(key):
    raise MemoryError
with memory.MemoryLimit(100 << 20):
    before = resource.getrlimit(resource.RLIMIT_DATA)
    read, memory.status_bytes = memory.status_bytes, none_left
    try:
        with memory.host_room(50 << 20):
            pass
    except MemoryError:
        memory.status_bytes = read
    with memory.host_room(0):
        after = resource.getrlimit(resource.RLIMIT_DATA)
print(json.dumps([before, after]))
""")
    assert after == before


@linux
def test_room_for_the_host_lasts_for_a_moment_and_stacks() -> None:
    """Inside, more can be mapped than the limit allows, also where it has been passed; outside the limit stands."""
    granted = in_child("""
from infradoc_engine.memory import MIB, MemoryLimit, host_room
def fits(size):
    try:
        return torch.empty(size * MIB, dtype=torch.uint8)
    except RuntimeError:
        return None
granted = []
with host_room(0), MemoryLimit(100 * MIB) as limit:
    held = [fits(90)]
    granted.append(fits(60) is not None)
    with host_room(60 * MIB):
        held.append(fits(60))
        granted.append(held[-1] is not None)
        with host_room(50 * MIB):
            granted.append(fits(50) is not None)
    granted.append(fits(4) is not None)  # 150 of 100 MiB are in use
    with host_room(30 * MIB):
        granted.append(fits(28) is not None)
    limit.allow_beside(200 * MIB)
    granted.append(fits(100) is not None)
with host_room(MIB):
    granted.append(fits(500) is not None)
print(json.dumps(granted))
""")
    assert granted == [False, True, True, False, True, True, True]


RUNNER = """
from pathlib import Path
from infradoc_engine.core.scheduler.output import ScheduledRequest, ScheduleOutput
from infradoc_engine.memory import NotEnoughMemory
from infradoc_engine.model_runner import ModelRunner
from infradoc_engine.weights import open_model
files = open_model(Path({path!r}))
MIB = 1 << 20
"""


@linux
def test_runner_within_its_budget_grows_until_the_kernel_says_no(model_path: Path) -> None:
    result = in_child(
        RUNNER.format(path=str(model_path))
        + """
runner = ModelRunner(files, device_memory_bytes=1000 * MIB, kv_pool_tokens=384, max_model_len=128, max_num_seqs=16)
prompt = list(range(100, 130))
def step():
    part = ScheduledRequest("a", prompt, 0, [22, 23], True, True)
    return runner.execute(ScheduleOutput(0, [part]), {})["a"].token_id
tokens, blocks = [step()], [runner.num_blocks]
runner.grow_kv(96)
tokens.append(step())
blocks.append(runner.num_blocks)
try:
    runner.grow_kv(96 * 50)
except NotEnoughMemory as error:
    refused = str(error)
tokens.append(step())
blocks.append(runner.num_blocks)
try:
    torch.empty(1000 * MIB, dtype=torch.uint8)
    hit = False
except RuntimeError:
    hit = True
# A step that finds no memory says so, harms nothing, and runs once there is some.
import resource
from infradoc_engine.memory import status_bytes, trim_heap
trim_heap()
old = resource.getrlimit(resource.RLIMIT_DATA)
resource.setrlimit(resource.RLIMIT_DATA, (status_bytes("VmData") + MIB, old[1]))
wide = [ScheduledRequest(f"b{i}", [9 + i] * 120, 0, list(range(8 * i, 8 * i + 8)), True, True) for i in range(4)]
try:
    runner.execute(ScheduleOutput(0, wide), {})
    full = ""
except NotEnoughMemory as error:
    full = str(error)
resource.setrlimit(resource.RLIMIT_DATA, old)
runner.execute(ScheduleOutput(0, wide), {})
tokens.append(step())
print(json.dumps([tokens, blocks, refused, hit, runner.memory_account(), full]))
"""
    )
    tokens, blocks, refused, hit, account, full = result
    assert full.startswith("No memory for a step of 480 tokens") and "\n" not in full
    assert len(set(tokens)) == 1 and blocks == [24, 96, 96]
    assert refused.startswith("No memory for a KV pool of 76800 tokens") and "\n" not in refused
    assert hit is True
    assert account["kv"] == 96 * 16 * 46_080 and account["weights"] > 500 * MIB
    assert 1 * MIB < account["activations"] < 200 * MIB and sum(account.values()) < 1000 * MIB


@linux
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("device_memory_bytes=300 * MIB", "The weights of"),
        ("device_memory_bytes=760 * MIB, max_model_len=4096", "No memory for a KV pool of 4096 tokens"),
        (
            "device_memory_bytes=900 * MIB, kv_pool_tokens=100_000, max_model_len=128",
            "No memory for a KV pool of 100000",
        ),
    ],
)
def test_runner_that_does_not_fit_says_what_would(model_path: Path, settings: str, says: str) -> None:
    message, fits, account, blocks = in_child(
        RUNNER.format(path=str(model_path))
        + f"""
asked = dict({settings})
try:
    ModelRunner(files, max_num_seqs=4, **asked)
except NotEnoughMemory as error:
    refusal = error
knob, value = next(iter(refusal.fits.items()))
fitting = ModelRunner(files, max_num_seqs=4, **(asked | {{knob: value}}))
print(json.dumps([str(refusal), refusal.fits, refusal.account, fitting.num_blocks]))
"""
    )
    assert blocks > 0  # the first of the settings it names does start
    assert message.startswith(says) and "\n" not in message and message.endswith(".")
    assert fits and account["weights"] > 500 * MIB
    for knob, value in fits.items():
        shown = f"{value // MIB}MiB" if knob == "device_memory_bytes" else value
        assert f"--{knob.replace('_', '-')} {shown}" in message


@linux
def test_a_shrunken_pool_makes_room_for_others(model_path: Path) -> None:
    refused, granted, blocks, tokens, back = in_child(
        RUNNER.format(path=str(model_path))
        + """
runner = ModelRunner(files, device_memory_bytes=1200 * MIB, kv_pool_tokens=6400, max_model_len=128, max_num_seqs=4)
prompt = list(range(100, 130))
def step():
    part = ScheduledRequest("a", prompt, 0, [2, 3], True, True)
    return runner.execute(ScheduleOutput(0, [part]), {})["a"].token_id
def take():
    try:
        return torch.empty(300 * MIB, dtype=torch.uint8).numel()
    except RuntimeError:
        return 0
tokens, blocks = [step()], [runner.num_blocks]
refused = take()
runner.shrink_kv(16)
granted = take()
tokens.append(step())
blocks.append(runner.num_blocks)
runner.rebuild_kv(32, 8)
tokens.append(step())
runner.rebuild_kv(64, 100)  # and what was freed can be had again by the pool itself
blocks.append(runner.num_blocks)
try:
    runner.rebuild_kv(64, 100_000)
except NotEnoughMemory as error:
    back = [str(error), runner.num_blocks, runner.block_size]
print(json.dumps([refused, granted, blocks, tokens, back]))
"""
    )
    assert refused == 0 and granted == 300 * MIB
    assert blocks == [400, 16, 100] and len(set(tokens)) == 1
    assert back[0].startswith("No memory for the KV pool of 6400000 tokens") and back[1:] == [100, 64]


@linux
def test_a_pool_whose_memory_was_taken_comes_back_smaller_or_not_at_all(model_path: Path) -> None:
    small, lost = in_child(
        RUNNER.format(path=str(model_path))
        + """
from infradoc_engine.memory import PoolLost, trim_heap
runner = ModelRunner(files, device_memory_bytes=1200 * MIB, kv_pool_tokens=6400, max_model_len=128, max_num_seqs=4)
runner.set_host_blocks(4)
prompt = list(range(100, 130))
def step():
    part = ScheduledRequest("a", prompt, 0, [2, 3], True, True)
    return runner.execute(ScheduleOutput(0, [part]), {})["a"].token_id
held = []
def be_quicker(keep):  # somebody takes all but `keep` bytes as soon as the old pool is gone
    cache, limit = runner._pool.cache, runner.budget._limit
    release = cache.release
    def stolen():
        release()
        trim_heap()
        if not held:
            held.append(torch.empty(limit.num_bytes - limit.used_bytes() - keep, dtype=torch.uint8))
    cache.release = stolen
tokens = [step()]
be_quicker(200 * MIB)
try:
    runner.rebuild_kv(32, 100_000)
except NotEnoughMemory as error:
    small = [str(error), isinstance(error, PoolLost), runner.num_blocks, runner.block_size, runner.num_host_blocks]
held.clear()
tokens.append(step())
be_quicker(2 * MIB)
try:
    runner.rebuild_kv(32, 100_000)
except NotEnoughMemory as error:
    lost = [str(error), isinstance(error, PoolLost), runner.num_blocks, runner.memory_account()["kv"]]
print(json.dumps([small + tokens, lost]))
"""
    )
    message, is_lost, blocks, block_size, host_blocks, *tokens = small
    assert not is_lost and block_size == 16 and 8 < blocks < 400 and host_blocks == 4 and len(set(tokens)) == 1
    assert message.startswith("No memory for the KV pool of 3200000 tokens") and "\n" not in message
    assert message.endswith(
        f"old pool of 6400 tokens found no room again either: the pool has {blocks * 16} tokens now."
    )
    message, is_lost, blocks, kv_bytes = lost
    assert is_lost and blocks == 0 and kv_bytes == 0
    assert "the 128 tokens of a single request of max_model_len" in message and message.endswith("restart the server.")


@linux
def test_swap_space_stands_beside_the_budget(model_path: Path) -> None:
    before, after, hosts, refused = in_child(
        RUNNER.format(path=str(model_path))
        + """
runner = ModelRunner(files, device_memory_bytes=1000 * MIB, kv_pool_tokens=512, max_model_len=128, max_num_seqs=4)
before = runner.free_bytes()
runner.set_host_blocks(runner.host_blocks_for(600 * MIB))  # more than is left of the device
after = runner.free_bytes()
hosts = [runner.num_host_blocks, runner.budget.host_bytes]
try:
    torch.empty(1000 * MIB, dtype=torch.uint8)
    refused = False
except RuntimeError:
    refused = True
print(json.dumps([before, after, hosts, refused]))
"""
    )
    assert abs(before - after) < 8 * MIB and refused is True
    assert hosts[0] == 600 * MIB // (16 * 46_080) and hosts[1] == hosts[0] * 16 * 46_080
