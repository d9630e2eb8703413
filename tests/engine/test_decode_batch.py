"""Static inputs of decode graphs on the CPU: the ladder, the padding, what is sent, and the logits of real rows."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infradoc_engine.core.scheduler.output import ScheduledRequest
from infradoc_engine.decode_batch import UNUSED, StaticBatch, ladder, may_replay, rung

CPU = torch.device("cpu")


def decode(name: str, token: int, position: int, table: list[int]) -> ScheduledRequest:
    return ScheduledRequest(name, [token], position, table, True, False)


def test_ladder() -> None:
    assert ladder(0) == () and ladder(1) == (1,) and ladder(3) == (1, 2, 3)
    assert ladder(20) == (1, 2, 4, 8, 16, 20)
    assert ladder(32) == (1, 2, 4, 8, 16, 24, 32)


@given(st.integers(1, 300), st.integers(1, 400))
def test_a_step_runs_in_the_smallest_graph_that_holds_it(largest: int, rows: int) -> None:
    sizes = ladder(largest)
    assert list(sizes) == sorted(set(sizes)) and sizes[-1] == largest
    chosen = rung(sizes, rows)
    if rows > largest:
        assert chosen is None
        return
    assert chosen is not None and chosen >= rows and chosen - rows < 8
    assert not [size for size in sizes if rows <= size < chosen]


def test_no_graph_holds_nothing() -> None:
    assert rung((), 1) is None and rung((1, 2), 0) is None


def test_only_steps_of_one_sampling_token_a_request_may_replay() -> None:
    plain = decode("a", 5, 7, [0, 1])
    assert may_replay([plain, plain])
    assert not may_replay([plain, ScheduledRequest("b", [1, 2], 0, [2], True, True)])
    assert not may_replay([ScheduledRequest("c", [1], 0, [2], False, True)])


def test_rows_are_filled_and_the_rest_is_padding() -> None:
    batch = StaticBatch(6, max_model_len=32, block_size=4, device=CPU)
    batch.fill([decode("a", 50, 9, [7, 3, 2]), decode("b", 60, 0, [5])])
    assert batch.token_ids(4).tolist() == [50, 60, 0, 0]
    assert batch.positions(4).tolist() == [9, 0, 0, 0]
    assert batch.slots(4).tolist() == [2 * 4 + 1, 5 * 4, UNUSED, UNUSED]
    plan = batch.plan(4)
    assert plan.decode_requests.tolist() == [0, 1, UNUSED, UNUSED]
    assert plan.context_lens.tolist()[:2] == [10, 1]
    assert plan.block_tables.shape == (4, 8) and plan.block_tables[0, :3].tolist() == [7, 3, 2]
    assert plan.query_starts.tolist() == [0, 1, 2, 3, 4] and plan.captured
    batch.clear()
    assert batch.slots(6).tolist() == [UNUSED] * 6 and batch.plan(6).decode_requests.tolist() == [UNUSED] * 6


def test_parts_start_at_multiples_of_16_bytes() -> None:
    """Otherwise a captured launch would compile its kernels anew."""
    batch = StaticBatch(5, max_model_len=32, block_size=4, device=CPU)
    plan, start = batch.plan(1), batch.token_ids(1).data_ptr()
    parts = (batch.positions(1), batch.slots(1), plan.context_lens, plan.decode_requests)
    assert all((part.data_ptr() - start) % 16 == 0 for part in parts)


@given(st.data())
def test_tables_on_the_device_follow_any_sequence_of_steps(data: st.DataObject) -> None:
    batch = StaticBatch(4, max_model_len=16, block_size=2, device=CPU)
    for _ in range(data.draw(st.integers(1, 6))):
        step = []
        for row in range(data.draw(st.integers(1, 4))):
            position = data.draw(st.integers(0, 15))
            blocks = position // 2 + 1 + data.draw(st.integers(0, 1))  # a table may be longer than it needs to be
            table = data.draw(st.lists(st.integers(0, 9), min_size=blocks, max_size=blocks))
            step.append(decode(str(row), row + 1, position, table))
        batch.fill(step)
        plan = batch.plan(len(step))
        for row, request in enumerate(step):
            used = request.start // 2 + 1
            assert plan.block_tables[row, :used].tolist() == request.block_table[:used]
            assert plan.context_lens[row] == request.start + 1


def test_what_does_not_fit_is_refused() -> None:
    batch = StaticBatch(16, max_model_len=8, block_size=4, device=CPU)
    with pytest.raises(ValueError, match="17 requests do not fit 16 rows"):
        batch.fill([decode("a", 1, 0, [0])] * 17)
    with pytest.raises(ValueError, match="position 8 is beyond max_model_len 8"):
        batch.fill([decode("a", 1, 8, [0, 1, 2])])


PADDED = """
import torch
from infradoc_engine.core.scheduler.output import ScheduledRequest
from infradoc_engine.decode_batch import StaticBatch
from infradoc_engine.gpu_check.random_model import TINY, RandomModel
from infradoc_engine.kv_cache import KVCache
from infradoc_engine.models.llama import LlamaModel
from infradoc_kernels import ops

cpu = torch.device("cpu")
torch.set_num_threads(1)
torch.set_grad_enabled(False)
model = LlamaModel(TINY, RandomModel(TINY, torch.float32, cpu).tensors(), torch.float32, cpu, 64)
steps = [(7, 5, [3, 1]), (9, 11, [0, 4, 2]), (4, 0, [5])]
rows = [ScheduledRequest(str(i), [t], p, table, True, False) for i, (t, p, table) in enumerate(steps)]

def cache():
    torch.manual_seed(1)
    made = KVCache(TINY, 8, 4, torch.float32, cpu)
    for pair in made.layers:
        for part in pair:
            part.normal_()
    return made

plain, padded = cache(), cache()
plan = ops.plan_attention([r.block_table for r in rows], [1] * 3, [r.start + 1 for r in rows],
    num_kv_heads=TINY.num_kv_heads, head_dim=TINY.head_dim, block_size=4, device=cpu)
slots = torch.tensor([r.block_table[r.start // 4] * 4 + r.start % 4 for r in rows])
positions, ids = torch.tensor([r.start for r in rows]), torch.tensor([r.token_ids[0] for r in rows])
expected = model.forward(ids, model.step(positions, slots, 4, plan), plain.layers, torch.arange(3))

# The same step as a graph would compute it: static inputs, five rows of padding, the Triton kernels (interpreted).
ops._pick = lambda name, *_: ops._module("", name)
ops.is_compiled = lambda *_: False
def rope_kv_write(heads, num_heads, cos, sin, k_cache, v_cache, slots, rows=None):
    turning = num_heads + k_cache.shape[1]
    turned = ops._module("", "rope").rope(heads[:, :turning], cos, sin)
    ops._module("", "kv_cache_write").kv_cache_write(turned[:, num_heads:], heads[:, turning:], k_cache, v_cache, slots)
    return turned[:, :num_heads]
ops.rope_kv_write = rope_kv_write
real_empty = torch.empty
torch.empty = lambda *a, **k: (lambda t: t.fill_(float("nan")) if t.is_floating_point() else t)(real_empty(*a, **k))
batch = StaticBatch(8, 64, 4, cpu)
batch.fill(rows)
step = model.step(batch.positions(8), batch.slots(8), 4, batch.plan(8))
logits = model.forward(batch.token_ids(8), step, padded.layers, torch.arange(8))
torch.testing.assert_close(logits[:3], expected, rtol=1e-4, atol=1e-5)
for one, other in zip(plain.layers, padded.layers):
    for a, b in zip(one, other):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
before = [[part.clone() for part in pair] for pair in padded.layers]
batch.clear()
step = model.step(batch.positions(8), batch.slots(8), 4, batch.plan(8))
model.forward(batch.token_ids(8), step, padded.layers, torch.arange(8))
assert all(torch.equal(a, b) for x, y in zip(before, padded.layers) for a, b in zip(x, y)), "padding wrote KV"
print("equal")
"""


def test_padding_leaves_the_logits_of_real_rows_and_the_cache_alone() -> None:
    """Against the plain path: the kernels run interpreted in a process of their own, new memory is NaN there."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", PADDED],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.stdout.strip() == "equal", done.stderr[-3000:]
