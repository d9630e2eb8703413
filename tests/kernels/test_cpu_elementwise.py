"""The compiled elementwise kernels against their references and float64, below and above the size that takes a team."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from infradoc_kernels.cpu import argmax as best
from infradoc_kernels.cpu import rms_norm as norm
from infradoc_kernels.cpu import rope_kv_write as rope
from infradoc_kernels.cpu import silu_and_mul as gate
from infradoc_kernels.reference.kv_cache_write import kv_cache_write
from infradoc_kernels.reference.rms_norm import rms_norm
from infradoc_kernels.reference.rope import rope as turn
from infradoc_kernels.reference.rope import rope_angles
from infradoc_kernels.reference.silu_and_mul import silu_and_mul


@pytest.fixture(autouse=True, params=[1, 2], ids=["one thread", "two threads"])
def threads(request: pytest.FixtureRequest) -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """New memory holds NaN: a number that a kernel forgets to write shows."""
    empty, like = torch.empty, torch.empty_like
    monkeypatch.setattr(torch, "empty", lambda *args, **kw: empty(*args, **kw).fill_(torch.nan))
    monkeypatch.setattr(torch, "empty_like", lambda *args, **kw: like(*args, **kw).fill_(torch.nan))


SIZES = [(1, 576), (3, 17), (9, 8), (32, 1536), (129, 577), (1, 1)]


@pytest.mark.parametrize(("rows", "hidden"), SIZES)
@pytest.mark.parametrize("with_residual", [False, True])
def test_rms_norm(poison: None, rows: int, hidden: int, with_residual: bool) -> None:
    x, weight = torch.randn(rows, hidden), torch.randn(hidden)
    residual = torch.randn(rows, hidden) if with_residual else None
    before = x.clone()
    y, summed = norm.rms_norm(x, weight, 1e-5, residual)
    wide = x.double() + (0 if residual is None else residual.double())
    exact = wide / (wide.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    torch.testing.assert_close(y.double(), exact, atol=1e-6, rtol=2e-6)
    theirs = rms_norm(x, weight, 1e-5, residual)
    torch.testing.assert_close(y, theirs[0], atol=1e-6, rtol=2e-6)
    torch.testing.assert_close(summed, theirs[1], atol=0, rtol=0)
    assert torch.equal(x, before)


@pytest.mark.parametrize(("rows", "inner"), SIZES)
def test_silu_and_mul(poison: None, rows: int, inner: int) -> None:
    x = torch.randn(rows, 2 * inner) * 6
    ours = gate.silu_and_mul(x)
    a, b = x.double().chunk(2, dim=-1)
    torch.testing.assert_close(ours.double(), a / (1 + (-a).exp()) * b, atol=1e-6, rtol=2e-6)
    torch.testing.assert_close(ours, silu_and_mul(x), atol=1e-6, rtol=2e-6)


def test_silu_at_the_ends() -> None:
    gates = torch.tensor([-1e30, -1000.0, -104.0, -88.0, -20.0, 0.0, 20.0, 88.0, 1000.0, 1e30] * 3)
    x = torch.cat((gates, torch.ones_like(gates)))[None]
    torch.testing.assert_close(gate.silu_and_mul(x), silu_and_mul(x), atol=2e-8, rtol=3e-6)
    assert gate.silu_and_mul(torch.tensor([[torch.nan, 1.0]])).isnan().all()


@pytest.mark.parametrize(("rows", "count"), [(1, 1), (3, 7), (1, 1024), (5, 1030), (32, 49152), (70, 3000)])
def test_argmax(rows: int, count: int) -> None:
    x = torch.randn(rows, count)
    assert torch.equal(best.argmax(x), x.argmax(-1))
    x[:, -1] = 9.0  # the last of the rest, or of the last stretch
    assert best.argmax(x).tolist() == [count - 1] * rows
    x[:, count // 2 :] = 9.0  # of equal ones the first
    assert best.argmax(x).tolist() == [count // 2] * rows
    assert best.argmax(torch.full((rows, count), -torch.inf)).tolist() == [0] * rows


@pytest.mark.parametrize("tokens", [1, 5, 40, 130])
@pytest.mark.parametrize(("heads", "head_dim"), [((9, 3), 64), ((4, 4), 8), ((5, 1), 2)])
def test_rope_and_write(tokens: int, heads: tuple[int, int], head_dim: int) -> None:
    num_heads, num_kv_heads = heads
    block_size, num_blocks = 16, 20
    packed = torch.randn(tokens, num_heads + 2 * num_kv_heads, head_dim)
    cos, sin = (table[torch.randint(0, 900, (tokens,))] for table in rope_angles(head_dim, 10_000.0, 900))
    slots = torch.randperm(num_blocks * block_size)[:tokens]
    shape = (num_blocks, num_kv_heads, block_size, head_dim)
    ours, theirs = ([torch.full(shape, torch.nan) for _ in range(2)] for _ in range(2))
    turned = turn(packed[:, : num_heads + num_kv_heads], cos, sin)
    kv_cache_write(turned[:, num_heads:], packed[:, num_heads + num_kv_heads :], *theirs, slots)
    q = rope.rope_kv_write(packed, num_heads, cos, sin, *ours, slots)
    torch.testing.assert_close(q, turned[:, :num_heads], atol=1e-6, rtol=1e-6)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-6, rtol=1e-6, equal_nan=True)  # and nothing beside the slots


def test_views_give_what_their_copies_give() -> None:
    wide = torch.randn(6, 40)
    view, flat = wide[:, 3:19], torch.randn(1, 16).expand(6, -1)
    weight = torch.randn(16, 2)[:, 0]
    torch.testing.assert_close(norm.rms_norm(view, weight, 1e-5, flat), rms_norm(view, weight, 1e-5, flat))
    torch.testing.assert_close(gate.silu_and_mul(view), silu_and_mul(view))
    assert torch.equal(best.argmax(wide.T), wide.T.argmax(-1))
    assert torch.equal(best.argmax(flat), flat.argmax(-1))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"weight \(7,\)"):
        norm.rms_norm(torch.zeros(2, 8), torch.zeros(7), 1e-5)
    caches = [torch.zeros(2, 3, 16, 8) for _ in range(2)]
    angles, slots = torch.zeros(4, 8), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"heads \(4, 14, 8\)"):
        rope.rope_kv_write(torch.zeros(4, 14, 8), 9, angles, angles, *caches, slots)
    with pytest.raises(ValueError, match="contiguous"):
        rope.rope_kv_write(torch.zeros(4, 15, 8), 9, angles, angles, caches[0], caches[1][:, :, ::2], slots)


def test_rope_writes_far_beyond_32_bits() -> None:
    num_kv_heads, block_size, head_dim = 3, 16, 64
    far = 5 * 2**29 // (num_kv_heads * block_size * head_dim)
    k_cache, v_cache = (torch.empty(far, num_kv_heads, block_size, head_dim) for _ in range(2))  # never touched
    packed = torch.randn(2, 15, head_dim)
    cos, sin = (table[:2] for table in rope_angles(head_dim, 10_000.0, 2))  # position 0 does not turn
    slots = torch.tensor([far * block_size - 1, 7])
    expected = packed.clone()
    rope.rope_kv_write(packed, 9, cos, sin, k_cache, v_cache, slots)
    torch.testing.assert_close(k_cache[far - 1, :, block_size - 1], expected[0, 9:12])
    torch.testing.assert_close(v_cache[far - 1, :, block_size - 1], expected[0, 12:])
    torch.testing.assert_close(v_cache[0, :, 7], expected[1, 12:])


def test_threads_of_python_run_while_kernels_do() -> None:
    """One engine thread computes while others use the interpreter: no lock-up, and the same numbers."""
    import threading

    x, stop, turns = torch.randn(64, 3072), threading.Event(), [0]
    expected = gate.silu_and_mul(x)

    def spin() -> None:
        while not stop.is_set():
            turns[0] += 1

    def compute(results: list[torch.Tensor]) -> None:
        results += [gate.silu_and_mul(x) for _ in range(200)]

    results: list[torch.Tensor] = []
    workers: list[Callable[[], None]] = [spin, lambda: compute(results)]
    threads = [threading.Thread(target=worker) for worker in workers]
    for thread in threads:
        thread.start()
    threads[1].join(60)
    stop.set()
    threads[0].join(60)
    assert turns[0] > 0 and len(results) == 200
    assert all(torch.equal(result, expected) for result in results)
