"""The compiled attention against the reference and float64, on float32 caches whose unused slots are poison."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infradoc_kernels.cpu import paged_attention as compiled
from infradoc_kernels.reference import paged_attention as reference


def attend(module: Any, q: torch.Tensor, paged: Any, query_lens: Sequence[int], window: int = 0) -> torch.Tensor:
    _, num_kv_heads, block_size, head_dim = paged.k_cache.shape
    contexts = [keys.shape[0] for keys in paged.keys]
    if module is compiled:
        plan = compiled.plan_compiled(paged.block_tables, query_lens, contexts, block_size=block_size, window=window)
    else:
        plan = reference.plan_attention(
            paged.block_tables,
            query_lens,
            contexts,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            block_size=block_size,
            window=window,
        )
    out: torch.Tensor = module.paged_attention(q, paged.k_cache, paged.v_cache, plan, head_dim**-0.5)
    return out


def exact(q: torch.Tensor, paged: Any, query_lens: Sequence[int], window: int) -> torch.Tensor:
    """Row by row in float64."""
    out, row = torch.empty(q.shape, dtype=torch.float64), 0
    group = q.shape[1] // paged.k_cache.shape[1]
    for query_len, keys, values in zip(query_lens, paged.keys, paged.values, strict=True):
        for i in range(query_len):
            stop = keys.shape[0] - query_len + i + 1
            start = max(0, stop - window) if window else 0
            k = keys[start:stop].double().repeat_interleave(group, 1)
            v = values[start:stop].double().repeat_interleave(group, 1)
            scores = torch.einsum("khd,hd->hk", k, q[row].double()) * q.shape[2] ** -0.5
            out[row] = torch.einsum("hk,khd->hd", scores.softmax(-1), v)
            row += 1
    return out


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request: pytest.FixtureRequest) -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


# A fresh prompt, a decode, a chunk with context, decodes of very unlike lengths, a first token, a chunk over tiles.
QUERY_LENS, CONTEXT_LENS = [13, 1, 7, 1, 1, 1, 70], [13, 40, 61, 3, 700, 1, 150]


@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("window", [0, 1, 5, 64, 10_000])
@pytest.mark.parametrize("block_size", [8, 16, 128])
def test_mixed_batches(
    make_paged: Callable[..., Any], threads: int, block_size: int, window: int, poison: float
) -> None:
    paged = make_paged(CONTEXT_LENS, 3, 64, block_size)
    for cache in (paged.k_cache, paged.v_cache):
        cache.nan_to_num_(nan=poison, posinf=poison)
    q = torch.randn(sum(QUERY_LENS), 9, 64, generator=torch.Generator().manual_seed(1))
    ours = attend(compiled, q, paged, QUERY_LENS, window)
    torch.testing.assert_close(ours.double(), exact(q, paged, QUERY_LENS, window), atol=3e-6, rtol=3e-6)


# Every path of the kernels: odd head sizes, one head a KV head, groups that are looked at in parts (9 = 3 x 3, 11 = 11
# x 1), and more sums than registers.
@pytest.mark.parametrize(("heads", "head_dim"), [((4, 4), 24), ((9, 1), 40), ((11, 1), 2), ((8, 1), 64)])
def test_shapes(make_paged: Callable[..., Any], heads: tuple[int, int], head_dim: int) -> None:
    paged = make_paged(CONTEXT_LENS, heads[1], head_dim, 16)
    q = torch.randn(sum(QUERY_LENS), heads[0], head_dim, generator=torch.Generator().manual_seed(2))
    for window in (0, 20):
        ours = attend(compiled, q, paged, QUERY_LENS, window)
        torch.testing.assert_close(ours.double(), exact(q, paged, QUERY_LENS, window), atol=3e-6, rtol=3e-6)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_random_batches_are_the_reference(data: st.DataObject) -> None:
    block_size = data.draw(st.sampled_from([8, 16, 24, 128]))
    num_kv_heads, window = data.draw(st.sampled_from([1, 3, 5])), data.draw(st.sampled_from([0, 0, 1, 17, 200]))
    contexts = data.draw(st.lists(st.integers(1, 900), min_size=1, max_size=6))
    query_lens = [data.draw(st.one_of(st.just(1), st.integers(1, min(n, 130)))) for n in contexts]
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    counts = [math.ceil(n / block_size) for n in contexts]
    shape = (sum(counts) + 1, num_kv_heads, block_size, 64)
    k_cache, v_cache = (torch.randn(shape, generator=generator) for _ in range(2))
    ids = torch.randperm(shape[0], generator=generator).tolist()
    tables = [[ids.pop() for _ in range(count)] for count in counts]
    wide = torch.randn(sum(query_lens), num_kv_heads * 5, 64, generator=generator)
    q = wide[:, : num_kv_heads * 3]  # a view of a fused projection
    plan = compiled.plan_compiled(tables, query_lens, contexts, block_size=block_size, window=window)
    ours = compiled.paged_attention(q, k_cache, v_cache, plan, 0.2)
    again = compiled.paged_attention(q, k_cache, v_cache, plan, 0.2)  # the next layer: the counters are as before
    theirs = reference.paged_attention(
        q,
        k_cache,
        v_cache,
        reference.plan_attention(
            tables,
            query_lens,
            contexts,
            num_kv_heads=num_kv_heads,
            head_dim=64,
            block_size=block_size,
            window=window,
        ),
        0.2,
    )
    torch.testing.assert_close(ours, theirs, atol=5e-6, rtol=5e-6)
    torch.testing.assert_close(again, ours, atol=1e-6, rtol=1e-6)  # the order in which stretches end is not fixed


def test_large_scores_do_not_overflow(make_paged: Callable[..., Any]) -> None:
    paged = make_paged([300, 40], 3, 64, 16)
    q = torch.randn(41, 9, 64, generator=torch.Generator().manual_seed(3)) * 300
    ours = attend(compiled, q, paged, [1, 40])
    torch.testing.assert_close(ours.double(), exact(q, paged, [1, 40], 0), atol=2e-4, rtol=2e-4)


def test_long_contexts_are_cut_into_stretches_that_cover_them() -> None:
    contexts = [5000, 3, 260, 1]
    tables = [list(range(math.ceil(n / 16))) for n in contexts]
    plan = compiled.plan_compiled(tables, [1] * 4, contexts, block_size=16)
    for index, context in enumerate(contexts):
        items = [item for item in plan.decodes.tolist() if item[1] == index]
        assert [item[2] for item in items[1:]] == [item[3] for item in items[:-1]]
        assert items[0][2] == 0 and items[-1][3] == context
        assert all(item[3] - item[2] <= compiled.MAX_STRETCH and item[4] == len(items) for item in items)
    assert len(plan.decodes) > 20


def test_blocks_far_beyond_32_bits() -> None:
    """Caches of 10 GiB of which only the blocks in use are ever touched: the rest is never there."""
    block_size, heads, head_dim = 16, 3, 64
    far = 5 * 2**29 // (heads * block_size * head_dim)
    k_cache, v_cache = (torch.empty(far, heads, block_size, head_dim) for _ in range(2))
    small = (torch.randn(4, heads, block_size, head_dim), torch.randn(4, heads, block_size, head_dim))
    ids = [far - 1, far // 2, far - 7, 1]
    for cache, values in zip((k_cache, v_cache), small, strict=True):
        for block, value in zip(ids, values, strict=True):
            cache[block] = value
    q = torch.randn(21, 9, head_dim)
    for query_lens, contexts in (([1], [50]), ([20], [50]), ([1, 20], [20, 30])):
        tables = [[0, 1, 2, 3]] if len(contexts) == 1 else [[0, 1], [2, 3]]
        rows = q[: sum(query_lens)]
        near_plan = compiled.plan_compiled(tables, query_lens, contexts, block_size=block_size)
        near = compiled.paged_attention(rows, *small, near_plan, 0.125)
        far_tables = [[ids[block] for block in table] for table in tables]
        far_plan = compiled.plan_compiled(far_tables, query_lens, contexts, block_size=block_size)
        torch.testing.assert_close(compiled.paged_attention(rows, k_cache, v_cache, far_plan, 0.125), near)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q, k: (q[:, :4], k), "4 query heads"),
        (lambda q, k: (q.double(), k), "float64"),
        (lambda q, k: (q.transpose(0, 1).contiguous().transpose(0, 1), k), "side by side"),
        (lambda q, k: (q, k.transpose(1, 2).contiguous().transpose(1, 2)), "contiguous"),
    ],
)
def test_what_the_kernels_cannot_read_is_refused(
    make_paged: Callable[..., Any], change: Callable[..., Any], message: str
) -> None:
    paged = make_paged([4, 9], 3, 64, 16)
    q, k_cache = change(torch.zeros(2, 9, 64), paged.k_cache)
    plan = compiled.plan_compiled(paged.block_tables, [1, 1], [4, 9], block_size=16)
    with pytest.raises(ValueError, match=message):
        compiled.paged_attention(q, k_cache, paged.v_cache, plan, 0.125)


def test_out_is_never_what_was_there_before(make_paged: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    paged = make_paged(CONTEXT_LENS, 3, 64, 16)
    q = torch.randn(sum(QUERY_LENS), 9, 64)
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *args, **kwargs: empty(*args, **kwargs).fill_(math.nan))
    assert attend(compiled, q, paged, QUERY_LENS).isfinite().all()
