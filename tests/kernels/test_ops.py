"""Which implementation serves which tensor, and that importing `ops` compiles nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from infradoc_kernels import ops
from infradoc_kernels.cpu.paged_attention import CompiledPlan


@pytest.fixture
def no_numba(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    ops._pick.cache_clear()
    monkeypatch.setattr(ops, "_has_numba", lambda: False)
    yield
    ops._pick.cache_clear()


def plan(**options: Any) -> Any:
    return ops.plan_attention([[0, 1], [2]], [4, 1], [20, 7], num_kv_heads=1, head_dim=8, block_size=16, **options)


def step(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """All operations once, on the same numbers."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    k_cache, v_cache = random(3, 1, 16, 8), random(3, 1, 16, 8)
    cos, sin = ops.rope_angles(8, 1e4, 5)
    slots = torch.tensor([16, 17, 18, 19, 38])
    q = ops.rope_kv_write(random(5, 4, 8), 2, cos, sin, k_cache, v_cache, slots)
    mixed = ops.paged_attention(q, k_cache, v_cache, plan(dtype=dtype), 0.3)
    y, summed = ops.rms_norm(random(5, 16), random(16), 1e-5, random(5, 16))
    return [q, k_cache, v_cache, mixed, y, summed, ops.silu_and_mul(random(5, 24))]


def test_float32_on_the_cpu_is_compiled() -> None:
    assert isinstance(plan(), CompiledPlan)
    assert ops._pick("rms_norm", torch.device("cpu"), torch.float32).__name__ == "infradoc_kernels.cpu.rms_norm"


def test_other_types_are_the_reference() -> None:
    assert isinstance(plan(dtype=torch.bfloat16), ops.AttentionPlan)
    module = ops._pick("rms_norm", torch.device("cpu"), torch.bfloat16)
    assert module.__name__ == "infradoc_kernels.reference.rms_norm"
    assert all(part.dtype == torch.bfloat16 for part in step(torch.bfloat16))


def test_without_numba_the_reference_gives_the_same(no_numba: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(plan(), ops.AttentionPlan)
    plain = step()
    monkeypatch.undo()
    ops._pick.cache_clear()
    for ours, theirs in zip(step(), plain, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=2e-6)


def test_warm_up_without_numba_does_nothing(no_numba: None) -> None:
    ops.warm_up(9, 3, 64, torch.float32, torch.device("cpu"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_nothing_is_left_to_compile_after_warm_up(dtype: str) -> None:
    """Compilers take time and memory for life: a request must not be the one to load them."""
    code = f"""
import sys, torch
from infradoc_kernels import ops
ops.warm_up(4, 2, 8, torch.{dtype}, torch.device("cpu"))
before = set(sys.modules)
ops.rms_norm(torch.ones(2, 8, dtype=torch.{dtype}), torch.ones(8, dtype=torch.{dtype}), 1e-5)
ops.argmax(torch.ones(2, 8))
print([name for name in set(sys.modules) - before if "numba" in name or "kernels.cpu" in name])
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_the_reference_knows_windows() -> None:
    """Both plans of one step, window by window, against a mask."""
    generator = torch.Generator().manual_seed(0)
    k_cache, v_cache = (torch.randn(3, 1, 16, 8, generator=generator) for _ in range(2))
    q = torch.randn(5, 2, 8, generator=generator)
    keys, values = (cache[:2].transpose(1, 2).reshape(-1, 8)[:20] for cache in (k_cache, v_cache))
    for window in (1, 3, 16, 19, 20, 100):
        reach = torch.arange(16, 20)[:, None] - torch.arange(20)
        hidden = (reach < 0) | (reach >= window)
        scores = torch.einsum("qhd,kd->hqk", q[:4], keys) * 0.3
        expected = torch.einsum("hqk,kd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), values)
        for dtype in (torch.float32, torch.float64):  # compiled, reference
            parts = [part.to(dtype) for part in (q, k_cache, v_cache)]
            ours = ops.paged_attention(*parts, plan(dtype=dtype, window=window), 0.3)
            torch.testing.assert_close(ours[:4].float(), expected, atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_windows_below_zero_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match="window is -1 tokens"):
        plan(dtype=dtype, window=-1)


def test_import_of_ops_loads_neither_numba_nor_triton() -> None:
    code = "import sys; from infradoc_kernels import ops; print([m for m in ('numba', 'triton') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
