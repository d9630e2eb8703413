"""The prefill kernel, interpreted, against float64; every mutation of it is caught."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from infradoc_kernels import paged_attention_prefill as module
from infradoc_kernels.paged_batch import plan_paged_batch

pytestmark = pytest.mark.usefixtures("interpreted_bf16")


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "block_size", "dtype"),
    [
        (4, 2, 64, 16, torch.float32),
        (4, 2, 64, 16, torch.float16),
        (4, 2, 64, 16, torch.bfloat16),
        (9, 3, 80, 8, torch.bfloat16),
        (7, 1, 96, 32, torch.float32),
        (2, 2, 128, 128, torch.float16),
        (17, 1, 256, 64, torch.bfloat16),
    ],
)
def test_against_float64(
    attention_case: Any,
    check_attention: Any,
    heads: int,
    kv_heads: int,
    head_dim: int,
    block_size: int,
    dtype: torch.dtype,
) -> None:
    shape = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "block_size": block_size}
    case = attention_case([2, 1, 33], [2, 5, 101], dtype=dtype, **shape)
    check_attention(module.paged_attention_prefill, case, prefill=True)


@pytest.mark.parametrize("seed", range(10))
def test_random_shapes(attention_case: Any, check_attention: Any, seed: int) -> None:
    pick = random.Random(seed)
    kv_heads = pick.randint(1, 3)
    query_lens = [pick.choice([1, pick.randint(2, 90)]) for _ in range(pick.randint(1, 4))]
    case = attention_case(
        query_lens,
        [query_len + pick.choice([0, pick.randint(0, 150)]) for query_len in query_lens],
        heads=kv_heads * pick.randint(1, 5),
        kv_heads=kv_heads,
        head_dim=pick.choice([64, 72, 80, 96, 112, 128]),
        block_size=pick.choice([8, 16, 24, 32, 64, 128]),
        dtype=pick.choice([torch.float32, torch.float16, torch.bfloat16]),
        window=pick.choice([0, 0, 1, pick.randint(2, 200)]),
        places=pick.choice([0, 2]),
        seed=seed,
    )
    check_attention(module.paged_attention_prefill, case, prefill=True)


@pytest.mark.parametrize("window", [1, 2, 63, 64, 65, 129, 130, 131])
def test_window_at_the_edges_of_tiles(attention_case: Any, check_attention: Any, window: int) -> None:
    case = attention_case([70, 2], [130, 65], heads=1, kv_heads=1, window=window)
    check_attention(module.paged_attention_prefill, case, prefill=True)


def test_a_batch_without_prefills_writes_nothing(attention_case: Any, check_attention: Any) -> None:
    check_attention(module.paged_attention_prefill, attention_case([1], [9]), prefill=True)


def check_large(kernel: Callable[..., None], virtual: Any, stride_block: int, stride_head: int, token: int) -> None:
    """Blocks, heads and tokens up to 2^30 values apart; offsets that wrap around in 32 bits land on other numbers."""
    cache = virtual(3 * 2**31, torch.float16)[2**31 :].as_strided((4, 3, 16, 64), (stride_block, stride_head, 64, 1))
    q, out = (virtual(3 * 2**31, torch.float16)[2**31 :].as_strided((4, 6, 64), (token, 64, 1)) for _ in range(2))
    generator = torch.Generator().manual_seed(0)
    for x in (cache, q):
        x.copy_(torch.randn(x.shape, generator=generator))
    tables, lens = [[3, 1], [2, 0]], [20, 18]
    batch = plan_paged_batch(tables, [2, 2], lens, block_size=16)
    kernel(q, cache, cache, batch, 0.1, out)
    for row in range(4):
        seen = lens[row // 2] - 1 + row % 2
        keys = cache[tables[row // 2]].transpose(1, 2).reshape(-1, 3, 64)[:seen].double().repeat_interleave(2, 1)
        weights = torch.einsum("hd,khd->hk", q[row].double(), keys).mul(0.1).softmax(-1)
        expected = torch.einsum("hk,khd->hd", weights, keys)
        torch.testing.assert_close(out[row].double(), expected, atol=2e-3, rtol=2e-3)


FAR = {"block": (2**30, 1024, 384), "head": (1024, 2**30, 384), "token": (3072, 1024, 2**30)}


@pytest.mark.parametrize("place", FAR)
def test_offsets_beyond_32_bits(virtual: Any, place: str) -> None:
    check_large(module.paged_attention_prefill, virtual, *FAR[place])


@pytest.mark.parametrize(
    ("place", "snippet", "replacement"),
    [
        ("block", "block = blocks.to(tl.int64)", "block = blocks"),
        ("head", "k_ptr + kv_head.to(tl.int64)", "k_ptr + kv_head"),
        ("head", "v_ptr + kv_head.to(tl.int64)", "v_ptr + kv_head"),
        ("token", "tokens = (query_start + query).to(tl.int64)", "tokens = query_start + query"),
    ],
)
def test_a_kernel_that_counts_in_32_bits_fails(
    virtual: Any, mutate: Any, place: str, snippet: str, replacement: str
) -> None:
    wrong = mutate(module, snippet, replacement).paged_attention_prefill
    with pytest.raises(AssertionError):
        check_large(wrong, virtual, *FAR[place])


def check_thoroughly(kernel: Callable[..., None], attention_case: Any, check_attention: Any) -> None:
    """Few programs, all paths: a window; several tiles of rows and of keys, with and without the mask; a short chunk
    beside a long one; an unused place. Tiles have 64 rows of 3 heads, so their edges fall within a query's heads."""
    shape = {"heads": 6, "head_dim": 80, "places": 1}
    check_attention(kernel, attention_case([1, 30], [3, 110], window=45, **shape), prefill=True)
    check_attention(kernel, attention_case([30, 1, 3], [110, 9, 70], **shape), prefill=True)


def test_the_right_kernel_passes_what_wrong_ones_fail(attention_case: Any, check_attention: Any) -> None:
    check_thoroughly(module.paged_attention_prefill, attention_case, check_attention)


@pytest.mark.parametrize(
    ("snippet", "replacement"),
    [
        ("kv_mask = kv_mask & (keys[:, None] < end)", "kv_mask = kv_mask"),
        ("kv_mask = kv_mask & (keys[:, None] < end)", "kv_mask = kv_mask & (keys[:, None] < end - 1)"),
        ("visible = distance >= 0", "visible = distance > 0"),
        ("visible = distance >= 0", "visible = distance >= -1"),
        ("distance < window", "distance <= window"),
        ("distance < window", "distance < window - 1"),
        ("tl.maximum(tile_first - window + 1, 0)", "tl.maximum(tile_first - window + 2 * TILE, 0)"),
        ("shared = (tile_first + 1) // TILE * TILE", "shared = (tile_first + TILE) // TILE * TILE"),
        ("- 1) // GROUP + 1", "- 1) // GROUP"),
        ("first_position = tl.load(lens_ptr + request) - query_len", "first_position = 0"),
        ("slot * stride_v_slot", "slot * stride_k_slot"),
        ("block * stride_k_block", "block * stride_v_block"),
        ("tokens[:, None] * stride_q_token", "tokens[:, None] * stride_out_token"),
        ("tokens[:, None] * stride_out_token", "tokens[:, None] * stride_q_token"),
        ("heads = kv_head * GROUP + rows % GROUP", "heads = kv_head + rows % GROUP"),
        ("heads = kv_head * GROUP + rows % GROUP", "heads = rows % GROUP * tl.num_programs(1) + kv_head"),
        ("query = rows // GROUP", "query = rows % query_len"),
        ("(rows[:, None] < num_rows) &", "(rows[:, None] < num_rows + 1) &"),
        ("if row_tile * ROWS >= num_rows:", "if row_tile * ROWS >= num_rows - ROWS:"),
        ("shrink = tl.exp2(peak - higher)", "shrink = tl.exp2(peak - peak)"),
        ("acc = acc * shrink[:, None] +", "acc = acc +"),
        ("total = total * shrink +", "total = total +"),
        ("ahead = keys + TILE", "ahead = keys"),
        ("table + ahead // BLOCK_SIZE", "table + ahead // TILE"),
        ("softmax_scale * LOG2_E", "softmax_scale"),
        ("(acc / total[:, None])", "acc"),
    ],
)
def test_a_wrong_kernel_fails(
    attention_case: Any, check_attention: Any, mutate: Any, snippet: str, replacement: str
) -> None:
    wrong = mutate(module, snippet, replacement).paged_attention_prefill
    with pytest.raises(AssertionError):
        check_thoroughly(wrong, attention_case, check_attention)


def test_what_does_not_fit_is_named() -> None:
    batch = plan_paged_batch([[0]], [2], [5], block_size=16)
    q, cache = torch.zeros(2, 3, 64), torch.zeros(2, 2, 16, 64)
    with pytest.raises(ValueError, match="3 query heads are not a multiple of 2 KV heads"):
        module.paged_attention_prefill(q, cache, cache, batch, 1.0, q)
