from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infradoc_kernels.reference import paged_attention as module


def run(paged: Any, q: torch.Tensor, query_lens: Sequence[int], context_lens: Sequence[int]) -> torch.Tensor:
    _, num_kv_heads, block_size, head_dim = paged.k_cache.shape
    plan = module.plan_attention(
        paged.block_tables,
        query_lens,
        context_lens,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        block_size=block_size,
    )
    return module.paged_attention(q, paged.k_cache, paged.v_cache, plan, head_dim**-0.5)


def check(
    make_paged: Callable[..., Any],
    naive_attention: Callable[..., torch.Tensor],
    query_lens: Sequence[int],
    context_lens: Sequence[int],
    heads: tuple[int, int],
    head_dim: int,
    block_size: int,
    seed: int = 0,
) -> None:
    paged = make_paged(context_lens, heads[1], head_dim, block_size, seed)
    q = torch.randn(sum(query_lens), heads[0], head_dim, generator=torch.Generator().manual_seed(seed + 1))
    ours = run(paged, q, query_lens, context_lens)
    assert ours.shape == q.shape and ours.dtype == q.dtype
    torch.testing.assert_close(
        ours.double(), naive_attention(q, paged, query_lens, head_dim**-0.5), atol=2e-5, rtol=2e-5
    )


@pytest.mark.parametrize("block_size", [8, 16, 32, 64, 128])
@pytest.mark.parametrize("heads", [(9, 3), (4, 4), (8, 1), (6, 2)])
def test_decodes_prefills_and_chunks_in_one_batch(
    make_paged: Any, naive_attention: Any, block_size: int, heads: tuple[int, int]
) -> None:
    # A fresh prompt, a decode, a chunk with context, decodes of very unlike lengths, a first token.
    check(make_paged, naive_attention, [13, 1, 7, 1, 1, 1], [13, 40, 61, 3, 129, 1], heads, 24, block_size)


@pytest.mark.parametrize("head_dim", [2, 40, 64, 128])
def test_head_dims(make_paged: Any, naive_attention: Any, head_dim: int) -> None:
    check(make_paged, naive_attention, [5, 1], [9, 33], (6, 3), head_dim, 16)


@pytest.mark.parametrize("context", [1, 15, 16, 17, 31, 32, 33])
def test_block_borders(make_paged: Any, naive_attention: Any, context: int) -> None:
    check(make_paged, naive_attention, [1], [context], (3, 3), 16, 16)
    check(make_paged, naive_attention, [context], [context], (3, 3), 16, 16)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_random_batches(data: st.DataObject) -> None:
    from types import SimpleNamespace

    num_kv_heads = data.draw(st.sampled_from([1, 2, 3]))
    group = data.draw(st.sampled_from([1, 3, 4]))
    block_size = data.draw(st.sampled_from([8, 16, 128]))
    context_lens = data.draw(st.lists(st.integers(1, 70), min_size=1, max_size=6))
    query_lens = [data.draw(st.one_of(st.just(1), st.integers(1, n))) for n in context_lens]
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    counts = [math.ceil(n / block_size) for n in context_lens]
    shape = (sum(counts) + 1, num_kv_heads, block_size, 8)
    k_cache, v_cache = (torch.randn(shape, generator=generator) for _ in range(2))
    ids = torch.randperm(shape[0], generator=generator).tolist()
    tables = [[ids.pop() for _ in range(count)] for count in counts]
    q = torch.randn(sum(query_lens), num_kv_heads * group, 8, generator=generator)
    paged = SimpleNamespace(k_cache=k_cache, v_cache=v_cache, block_tables=tables)
    ours = run(paged, q, query_lens, context_lens)
    row = 0
    for table, query_len, context_len in zip(tables, query_lens, context_lens, strict=True):
        k, v = (
            c[table].transpose(1, 2).reshape(-1, num_kv_heads, 8)[:context_len].double() for c in (k_cache, v_cache)
        )
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = torch.einsum("qhd,khd->hqk", q[row : row + query_len].double(), k) * 8**-0.5
        hidden = torch.ones(query_len, context_len, dtype=torch.bool).triu(context_len - query_len + 1)
        expected = torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -math.inf).softmax(-1), v)
        torch.testing.assert_close(ours[row : row + query_len].double(), expected, atol=2e-5, rtol=2e-5)
        row += query_len


def test_order_of_requests_does_not_matter(make_paged: Any) -> None:
    lens = [5, 90, 17, 88, 1, 40]
    paged = make_paged(lens, 2, 16, 16)
    q = torch.randn(6, 4, 16)
    whole = run(paged, q, [1] * 6, lens)
    for i, context_len in enumerate(lens):
        paged.block_tables, tables = [paged.block_tables[i]], paged.block_tables
        torch.testing.assert_close(run(paged, q[i : i + 1], [1], [context_len])[0], whole[i])
        paged.block_tables = tables


def test_groups_of_decodes_stay_small_and_cover_all_rows() -> None:
    lens = [1500, 3, 20, 700, 16, 64, 65, 1400, 30, 31] * 4
    tables = [list(range(math.ceil(n / 16))) for n in lens]
    plan = module.plan_attention(tables, [1] * len(lens), lens, num_kv_heads=3, head_dim=64, block_size=16)
    rows = sorted(row for group in plan.decodes for row in group.query_rows.tolist())
    assert rows == list(range(len(lens)))
    for group in plan.decodes:
        count = group.query_rows.numel()
        assert count == 1 or count * group.max_tokens * 3 * 64 <= module.GROUP_VALUES
        shortest = min(lens[row] for row in group.query_rows.tolist())
        assert 2 * shortest >= group.max_tokens - 16  # at most about half of a group is padding


def test_blocks_far_beyond_32_bits() -> None:
    """A pool of 3 * 2^31 values by strides of zero: rows of it would wrap around in 32-bit arithmetic."""
    block_size, heads, head_dim = 16, 4, 8
    per_block = heads * block_size * head_dim
    far = 3 * 2**31 // per_block
    flat = torch.zeros(1).expand(far * heads, block_size * head_dim)
    plan = module.plan_attention([[far - 1]], [1], [5], num_kv_heads=heads, head_dim=head_dim, block_size=block_size)
    rows = plan.decodes[0].cache_rows
    assert rows.dtype == torch.int64
    assert int(rows[-1]) * block_size * head_dim + block_size * head_dim == 3 * 2**31
    assert flat[rows].shape == (heads, block_size * head_dim)


@pytest.mark.parametrize(
    ("tables", "query_lens", "context_lens"),
    [([[0]], [1], [17]), ([[0]], [0], [4]), ([[0]], [5], [4]), ([[0], [1]], [1], [1])],
)
def test_lengths_that_do_not_fit_are_refused(
    tables: list[list[int]], query_lens: list[int], context_lens: list[int]
) -> None:
    with pytest.raises(ValueError, match="block"):
        module.plan_attention(tables, query_lens, context_lens, num_kv_heads=1, head_dim=8, block_size=16)


def test_heads_that_do_not_divide_are_refused(make_paged: Any) -> None:
    paged = make_paged([4], 2, 8, 8)
    with pytest.raises(ValueError, match="3 query heads"):
        run(paged, torch.zeros(1, 3, 8), [1], [4])
