"""Naive float64 twins, random paged caches, and the tools of the Triton tests: interpretation, poison, mutation."""

from __future__ import annotations

import importlib.util
import math
import mmap
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch


def _interpret_triton() -> None:
    """Makes Triton run kernels on the CPU, in this process only.

    Triton decides that for its own library when it is first imported, hence here, before any test of this folder is.
    The variable does not stay in the environment: servers that other tests start must not inherit it.
    """
    loaded = "triton" in sys.modules
    os.environ["TRITON_INTERPRET"] = "1"
    import triton
    import triton.language

    if loaded and type(triton.language.sum).__name__ != "InterpretedFunction":
        raise pytest.UsageError(
            "triton was imported before tests/kernels/conftest.py could switch it to interpretation: "
            "move that import into the test that needs it, or run tests/kernels on its own"
        )
    triton.knobs.propagate_env = False
    triton.knobs.runtime.interpret = True
    triton.knobs.propagate_env = True
    del os.environ["TRITON_INTERPRET"]


_interpret_triton()


@dataclass
class Paged:
    """A random cache in which only the slots that requests own hold numbers; the rest is NaN."""

    k_cache: torch.Tensor  # [num_blocks, num_kv_heads, block_size, head_dim]
    v_cache: torch.Tensor
    block_tables: list[list[int]]
    keys: list[torch.Tensor]  # per request [context_len, num_kv_heads, head_dim]
    values: list[torch.Tensor]


@pytest.fixture
def make_paged() -> Callable[..., Paged]:
    def make(context_lens: Sequence[int], num_kv_heads: int, head_dim: int, block_size: int, seed: int = 0) -> Paged:
        generator = torch.Generator().manual_seed(seed)
        counts = [math.ceil(n / block_size) for n in context_lens]
        num_blocks = sum(counts) + 3
        ids = torch.randperm(num_blocks, generator=generator).tolist()
        shape = (num_blocks, num_kv_heads, block_size, head_dim)
        paged = Paged(torch.full(shape, torch.nan), torch.full(shape, torch.nan), [], [], [])
        for context_len, count in zip(context_lens, counts, strict=True):
            table, ids = ids[:count], ids[count:]
            k, v = (torch.randn(context_len, num_kv_heads, head_dim, generator=generator) for _ in range(2))
            for position in range(context_len):
                block, offset = table[position // block_size], position % block_size
                paged.k_cache[block, :, offset] = k[position]
                paged.v_cache[block, :, offset] = v[position]
            paged.block_tables.append(table)
            paged.keys.append(k)
            paged.values.append(v)
        return paged

    return make


def _naive_attention(q: torch.Tensor, paged: Paged, query_lens: Sequence[int], scale: float) -> torch.Tensor:
    """Row by row, head by head, in float64."""
    out, row = torch.empty(q.shape, dtype=torch.float64), 0
    group = q.shape[1] // paged.k_cache.shape[1]
    for query_len, keys, values in zip(query_lens, paged.keys, paged.values, strict=True):
        for i in range(query_len):
            seen = keys.shape[0] - query_len + i + 1
            for head in range(q.shape[1]):
                k, v = keys[:seen, head // group].double(), values[:seen, head // group].double()
                out[row, head] = torch.softmax(k @ q[row, head].double() * scale, 0) @ v
            row += 1
    return out


@pytest.fixture
def naive_attention() -> Callable[..., torch.Tensor]:
    return _naive_attention


_QUIET_NAN = {torch.float32: 0x7FC0_0000, torch.float16: 0x7E00, torch.bfloat16: 0x7FC0}  # bits; the payload is free


@dataclass
class Guarded:
    """Tensors with a poisoned margin before and after them, so that a kernel's stray reads and writes show.

    Each storage has a NaN of its own: one that a kernel carries over from another margin is told apart.
    """

    margin: int = 1 << 15  # values on either side, beyond the widest tile
    storages: list[tuple[torch.Tensor, int, int]] = field(default_factory=list)  # bits, values inside, poison

    def empty(
        self, *shape: int | Sequence[int], dtype: torch.dtype = torch.float32, device: object = None
    ) -> torch.Tensor:
        """Like torch.empty, but every value is NaN (a number below zero for integer types)."""
        sizes = [n for part in shape for n in ([part] if isinstance(part, int) else part)]
        numel, bits = math.prod(sizes), {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
        poison = _QUIET_NAN.get(dtype, -1000) + len(self.storages) + 1
        storage = torch.full((numel + 2 * self.margin,), poison, dtype=bits)
        self.storages.append((storage, numel, poison))
        return storage[self.margin : self.margin + numel].view(dtype).view(sizes)

    def copy(self, x: torch.Tensor) -> torch.Tensor:
        """A contiguous copy of x with poison around it."""
        return self.empty(x.shape, dtype=x.dtype).copy_(x)

    def check(self) -> None:
        """Fails if anything was written beside a tensor."""
        for storage, numel, poison in self.storages:
            for side in (storage[: self.margin], storage[self.margin + numel :]):
                assert bool((side == poison).all()), f"values were written beside a tensor of {numel}"


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Guarded:
    """Poisoned allocation; torch.empty and torch.empty_like, which wrappers allocate results with, are poisoned too."""
    guard = Guarded()
    monkeypatch.setattr(torch, "empty", guard.empty)
    monkeypatch.setattr(torch, "empty_like", lambda x, **_: guard.empty(x.shape, dtype=x.dtype))
    return guard


@pytest.fixture
def virtual() -> Callable[[int, torch.dtype], torch.Tensor]:
    """Makes a flat tensor of zeros whose pages cost memory only once written: room for offsets beyond 2^31."""

    def make(numel: int, dtype: torch.dtype) -> torch.Tensor:
        # 0x4000 is MAP_NORESERVE, which the module does not name: no host may refuse the size.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000
        return torch.frombuffer(mmap.mmap(-1, numel * dtype.itemsize, flags=flags), dtype=dtype)

    return make


@pytest.fixture
def mutate(tmp_path: Path) -> Callable[[ModuleType, str, str], ModuleType]:
    """Imports a copy of a module in which one snippet, which must occur exactly once, is replaced."""

    def make(module: ModuleType, snippet: str, replacement: str) -> ModuleType:
        assert module.__file__ is not None
        source = Path(module.__file__).read_text()
        assert source.count(snippet) == 1, f"{snippet!r} occurs {source.count(snippet)} times in {module.__file__}"
        path = tmp_path / f"mutated_{Path(module.__file__).stem}_{len(list(tmp_path.iterdir()))}.py"
        path.write_text(source.replace(snippet, replacement))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        copy = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(copy)
        return copy

    return make


@dataclass
class AttentionCase:
    """Inputs of a paged attention kernel, all views with strides of their own, and what it must give."""

    q: torch.Tensor  # [num_tokens, num_heads, head_dim]
    k_cache: torch.Tensor  # [num_blocks, num_kv_heads, block_size, head_dim]; NaN in slots that no request owns
    v_cache: torch.Tensor  # infinities there
    batch: Any  # PagedBatch
    scale: float
    expected: torch.Tensor  # float64, q's shape


def _expected_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, window: int) -> torch.Tensor:
    """One request in float64: q [queries, heads, head_dim] at the end of k, v [context, kv_heads, head_dim]."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(group, 1) for x in (k, v))
    positions = torch.arange(k.shape[0] - q.shape[0], k.shape[0])[:, None]
    keys = torch.arange(k.shape[0])[None]
    hidden = (keys > positions) | (keys <= positions - (window or k.shape[0]))
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) * scale
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)


@pytest.fixture
def attention_case(guarded: Guarded) -> Callable[..., AttentionCase]:
    """Makes random cases. `places` is how many -1 follow the decode and the prefill requests."""
    from infradoc_kernels.paged_batch import plan_paged_batch

    def make(
        query_lens: Sequence[int],
        context_lens: Sequence[int],
        *,
        heads: int = 4,
        kv_heads: int = 2,
        head_dim: int = 64,
        block_size: int = 16,
        dtype: torch.dtype = torch.float32,
        window: int = 0,
        places: int = 0,
        seed: int = 0,
    ) -> AttentionCase:
        generator = torch.Generator().manual_seed(seed)
        counts = [-(-n // block_size) for n in context_lens]
        num_blocks = sum(counts) + 3
        # Block 0 is nobody's: a masked block id is 0, and a kernel that follows it must meet poison.
        ids = (torch.randperm(num_blocks - 1, generator=generator) + 1).tolist()
        # Keys and values in unlike layouts: rows of v have a gap, blocks of k have one.
        k_cache = guarded.empty(num_blocks, kv_heads + 1, block_size, head_dim, dtype=dtype)[:, :kv_heads]
        v_cache = guarded.empty(num_blocks, kv_heads, block_size, head_dim + 16, dtype=dtype)[..., :head_dim]
        v_cache.fill_(torch.inf)
        q = guarded.empty(sum(query_lens), heads + 2 * kv_heads, head_dim, dtype=dtype)[:, :heads]
        q.copy_(torch.randn(q.shape, generator=generator))
        tables, expected, row = [], torch.empty(0).new_zeros(q.shape, dtype=torch.float64), 0
        scale = head_dim**-0.5 * 1.5
        for query_len, context_len, count in zip(query_lens, context_lens, counts, strict=True):
            table, ids = ids[:count], ids[count:]
            tables.append(table)
            shape = (context_len, kv_heads, head_dim)
            k, v = (torch.randn(shape, generator=generator) for _ in range(2))
            # Later keys weigh more: a running softmax must rescale what it has.
            k, v = (k * torch.linspace(0.3, 2, context_len)[:, None, None]).to(dtype), v.to(dtype)
            at = torch.tensor(table)[torch.arange(context_len) // block_size], torch.arange(context_len) % block_size
            k_cache[at[0], :, at[1]] = k
            v_cache[at[0], :, at[1]] = v
            rows = slice(row, row + query_len)
            expected[rows] = _expected_attention(q[rows], k, v, scale, window)
            row += query_len
        batch = plan_paged_batch(tables, query_lens, context_lens, block_size=block_size, window=window)
        for name in ("block_tables", "query_starts", "context_lens"):
            setattr(batch, name, guarded.copy(getattr(batch, name)))
        unused = torch.full((places,), -1, dtype=torch.int32)
        batch.decode_requests = guarded.copy(torch.cat([batch.decode_requests, unused]))
        batch.prefill_requests = guarded.copy(torch.cat([batch.prefill_requests, unused]))
        return AttentionCase(q, k_cache, v_cache, batch, scale, expected)

    return make


@pytest.fixture
def check_attention(guarded: Guarded) -> Callable[..., None]:
    """Runs a kernel on a case: its requests' rows are right, all others are as before, nothing beside is written."""
    tolerance = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}

    def check(kernel: Callable[..., None], case: AttentionCase, prefill: bool, **options: object) -> None:
        out = guarded.empty(case.q.shape[0], case.q.shape[1] + 1, case.q.shape[2], dtype=case.q.dtype)[:, 1:]
        kernel(case.q, case.k_cache, case.v_cache, case.batch, case.scale, out, **options)
        guarded.check()
        lens = case.batch.query_starts.diff()
        ours = ((lens > 1) == prefill).repeat_interleave(lens.long())
        assert bool(out[~ours].isnan().all()), "rows of other requests were written"
        limit = tolerance[case.q.dtype]
        torch.testing.assert_close(out[ours].double(), case.expected[ours], atol=limit, rtol=limit)

    return check


@pytest.fixture
def interpreted_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's interpreter (3.9) multiplies the bit patterns of bfloat16 matrices; here it gets their values."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    plain = InterpreterBuilder.create_dot

    def value(x: Any) -> Any:
        if x.dtype.scalar != tl.bfloat16:
            return x
        return TensorHandle((x.data.astype("uint32") << 16).view("float32"), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *others: Any) -> Any:
        return plain(self, value(a), value(b), *others)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", create_dot)
