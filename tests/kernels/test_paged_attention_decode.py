"""The decode kernel, interpreted, against float64; every mutation of it is caught."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from infradoc_kernels import paged_attention_decode as module
from infradoc_kernels.paged_attention_settings import Splits
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
        (71, 1, 64, 16, torch.float32),
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
    case = attention_case([1, 1], [1, 100], dtype=dtype, **shape)
    check_attention(module.paged_attention_decode, case, prefill=False)
    check_attention(module.paged_attention_decode, case, prefill=False, splits=Splits(3, 1))


@pytest.mark.parametrize("seed", range(10))
def test_random_shapes(attention_case: Any, check_attention: Any, seed: int) -> None:
    pick = random.Random(seed)
    count = pick.randint(1, 4)
    kv_heads = pick.randint(1, 3)
    context_lens = [pick.randint(1, 250) for _ in range(count)]
    case = attention_case(
        [pick.choice([1, 1, min(3, context_len)]) for context_len in context_lens],
        context_lens,
        heads=kv_heads * pick.randint(1, 8),
        kv_heads=kv_heads,
        head_dim=pick.choice([64, 72, 80, 96, 112, 128]),
        block_size=pick.choice([8, 16, 24, 32, 64, 128]),
        dtype=pick.choice([torch.float32, torch.float16, torch.bfloat16]),
        window=pick.choice([0, 0, 1, pick.randint(2, 300)]),
        places=pick.choice([0, 2]),
        seed=seed,
    )
    splits = pick.choice([None, Splits(pick.randint(1, 18), pick.randint(1, 3))])
    check_attention(module.paged_attention_decode, case, prefill=False, splits=splits)


@pytest.mark.parametrize("window", [1, 2, 63, 64, 65, 128, 149, 150, 151])
def test_window_at_the_edges_of_tiles(attention_case: Any, check_attention: Any, window: int) -> None:
    case = attention_case([1, 1], [150, 64], window=window)
    check_attention(module.paged_attention_decode, case, prefill=False, splits=Splits(4, 1))


def test_a_captured_launch_suits_shorter_contexts_and_unused_places(attention_case: Any, check_attention: Any) -> None:
    """One scratch, one number of splits, tensors of the largest rung: as a CUDA graph replays it."""
    splits = Splits(6, 1)
    scratch = module.allocate_decode_scratch(4, 4, 64, splits.count, "cpu")
    for lens in ([1, 500, 130, 3], [2, 90], [200]):
        case = attention_case([1] * len(lens), lens, places=4 - len(lens), seed=len(lens))
        check_attention(module.paged_attention_decode, case, prefill=False, splits=splits, scratch=scratch)


def test_a_batch_without_decodes_writes_nothing(attention_case: Any, check_attention: Any) -> None:
    check_attention(module.paged_attention_decode, attention_case([3], [9]), prefill=False)


def test_a_request_of_no_tokens_is_left_alone() -> None:
    batch = plan_paged_batch([[0]], [1], [5], block_size=16)
    batch.context_lens.zero_()
    q, cache, out = torch.ones(1, 2, 64), torch.ones(1, 1, 16, 64), torch.full((1, 2, 64), 7.0)
    module.paged_attention_decode(q, cache, cache, batch, 1.0, out, splits=Splits(2, 1))
    assert bool((out == 7.0).all())


def check_large(kernel: Callable[..., None], virtual: Any, stride_block: int, stride_head: int, token: int) -> None:
    """Blocks, heads and tokens up to 2^30 values apart; offsets that wrap around in 32 bits land on other numbers."""
    cache = virtual(3 * 2**31, torch.float16)[2**31 :].as_strided((4, 3, 16, 64), (stride_block, stride_head, 64, 1))
    q, out = (virtual(3 * 2**31, torch.float16)[2**31 :].as_strided((3, 6, 64), (token, 64, 1)) for _ in range(2))
    generator = torch.Generator().manual_seed(0)
    for x in (cache, q):
        x.copy_(torch.randn(x.shape, generator=generator))
    tables, lens = [[3, 1], [0], [2]], [20, 16, 3]
    batch = plan_paged_batch(tables, [1, 1, 1], lens, block_size=16)
    kernel(q, cache, cache, batch, 0.1, out, splits=Splits(2, 1))
    for i, (table, context_len) in enumerate(zip(tables, lens, strict=True)):
        keys = cache[table].transpose(1, 2).reshape(-1, 3, 64)[:context_len].double().repeat_interleave(2, 1)
        weights = torch.einsum("hd,khd->hk", q[i].double(), keys).mul(0.1).softmax(-1)
        expected = torch.einsum("hk,khd->hd", weights, keys)
        torch.testing.assert_close(out[i].double(), expected, atol=2e-3, rtol=2e-3)


FAR = {"block": (2**30, 1024, 384), "head": (1024, 2**30, 384), "token": (3072, 1024, 2**30)}


@pytest.mark.parametrize("place", FAR)
def test_offsets_beyond_32_bits(virtual: Any, place: str) -> None:
    check_large(module.paged_attention_decode, virtual, *FAR[place])


@pytest.mark.parametrize(
    ("place", "snippet", "replacement"),
    [
        ("block", "block = blocks.to(tl.int64)", "block = blocks"),
        ("head", "k_ptr + kv_head.to(tl.int64)", "k_ptr + kv_head"),
        ("head", "v_ptr + kv_head.to(tl.int64)", "v_ptr + kv_head"),
        (
            "token",
            "token = tl.load(starts_ptr + request).to(tl.int64)\n    q_rows",
            "token = tl.load(starts_ptr + request)\n    q_rows",
        ),
    ],
)
def test_a_kernel_that_counts_in_32_bits_fails(
    virtual: Any, mutate: Any, place: str, snippet: str, replacement: str
) -> None:
    wrong = mutate(module, snippet, replacement).paged_attention_decode
    with pytest.raises(AssertionError):
        check_large(wrong, virtual, *FAR[place])


@pytest.mark.parametrize(
    ("snippet", "replacement"),
    [
        ("seen = (keys >= first_key) & (keys < context_len)", "seen = keys >= first_key"),
        ("seen = (keys >= first_key) & (keys < context_len)", "seen = keys < context_len"),
        ("seen = (keys >= first_key) & (keys < context_len)", "seen = (keys >= first_key) & (keys < context_len - 1)"),
        ("tl.maximum(context_len - window, 0)", "tl.maximum(context_len - window - 1, 0)"),
        ("tl.maximum(context_len - window, 0)", "tl.maximum(context_len - window + 1, 0)"),
        ("tl.where(window > 0,", "tl.where(window > 1000,"),
        ("slot * stride_v_slot", "slot * stride_k_slot"),
        ("block * stride_k_block", "block * stride_v_block"),
        ("heads[:, None].to(tl.int64) * stride_q_head", "heads[:, None].to(tl.int64) * stride_k_slot * 0"),
        ("token * stride_q_token", "token * stride_out_token"),
        ("token * stride_out_token + heads", "token * stride_q_token + heads"),
        ("heads = kv_head * GROUP + member", "heads = member * (tl.num_programs(0) // HEAD_TILES) + kv_head"),
        ("heads = kv_head * GROUP + member", "heads = kv_head + member"),
        ("(member[:, None] < GROUP) &", "(member[:, None] < ROWS) &"),
        ("dims = tl.arange(0, BLOCK_D)\n    row_mask", "dims = tl.arange(0, BLOCK_D) // 2\n    row_mask"),
        ("shrink = tl.exp2(peak - higher)", "shrink = tl.exp2(peak - peak)"),
        ("acc = acc * shrink[:, None] +", "acc = acc +"),
        ("total = total * shrink + tl.sum(weights, 1)", "total = total + tl.sum(weights, 1)"),
        ("peak + tl.log2(total)", "peak"),
        ("* num_splits + split\n", "* num_splits\n"),
        ("ahead = keys + TILE", "ahead = keys"),
        ("table + ahead // BLOCK_SIZE", "table + ahead // TILE"),
        ("softmax_scale * LOG2_E", "softmax_scale"),
        # the second pass
        ("weights = tl.exp2(peaks - higher)", "weights = tl.where(splits < used, 1.0, 0.0)"),
        ("acc = acc * shrink + tl.sum(parts", "acc = acc + tl.sum(parts"),
        ("total = total * shrink + tl.sum(weights, 0)", "total = total + tl.sum(weights, 0)"),
        ("mask=splits < used, other=float", "mask=splits < num_splits, other=float"),
        ("used = tl.cdiv(end_tile - first_tile, per_split)", "used = (end_tile - first_tile) // per_split"),
        ("* tl.num_programs(0) + head) * num_splits", "* tl.num_programs(0) + head)"),
        ("(acc / total).to(out_ptr", "acc.to(out_ptr"),
    ],
)
def test_a_wrong_kernel_fails(
    attention_case: Any, check_attention: Any, mutate: Any, monkeypatch: Any, snippet: str, replacement: str
) -> None:
    wrong = mutate(module, snippet, replacement)
    monkeypatch.setattr(wrong, "REDUCE_CHUNK", 2)
    with pytest.raises(AssertionError):
        check_thoroughly(wrong.paged_attention_decode, attention_case, check_attention)


def check_thoroughly(kernel: Callable[..., None], attention_case: Any, check_attention: Any) -> None:
    """Few programs, all paths: a window; one split; splits of several tiles, the last one shorter and one not needed;
    more splits than a chunk of 2 in the reduction (tiles have 32 keys here, so 150 tokens have 5)."""
    shape = {"heads": 6, "head_dim": 80, "places": 1}
    check_attention(kernel, attention_case([1, 1], [60, 110], window=45, **shape), prefill=False, splits=Splits(2, 1))
    case = attention_case([1, 1], [150, 20], **shape)
    check_attention(kernel, case, prefill=False, splits=Splits(4, 1))
    check_attention(kernel, case, prefill=False, splits=Splits(5, 1))


def test_the_right_kernel_passes_what_wrong_ones_fail(
    attention_case: Any, check_attention: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(module, "REDUCE_CHUNK", 2)
    check_thoroughly(module.paged_attention_decode, attention_case, check_attention)


def call(changed: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {
        "q": torch.zeros(1, 4, 64),
        "k_cache": torch.zeros(2, 2, 16, 64),
        "v_cache": torch.zeros(2, 2, 16, 64),
        "batch": plan_paged_batch([[0]], [1], [5], block_size=16),
        "softmax_scale": 1.0,
        "out": torch.zeros(1, 4, 64),
    }
    module.paged_attention_decode(**(arguments | changed))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"q": torch.zeros(1, 3, 64), "out": torch.zeros(1, 3, 64)}, "3 query heads are not a multiple of 2 KV heads"),
        ({"q": torch.zeros(1, 4, 32)}, r"k_cache has shape \(2, 2, 16, 64\), it must be \[\*, \*, \*, 32\]"),
        ({"v_cache": torch.zeros(3, 2, 16, 64)}, r"v_cache has shape \(3, 2, 16, 64\)"),
        ({"k_cache": torch.zeros(2, 2, 16, 64).half()}, "k_cache is torch.float16, it must be torch.float32"),
        ({"out": torch.zeros(1, 64, 4).transpose(1, 2)}, "out has strides .* the last one must be 1"),
        ({"splits": Splits(0, 1)}, "both must be 1 or more"),
        (
            {"splits": Splits(8, 1), "scratch": module.allocate_decode_scratch(1, 4, 64, 7, "cpu")},
            "scratch holds 1792 values and 28 peaks, 1 requests x 4 heads x 8 splits need 2048 and 32",
        ),
    ],
)
def test_what_does_not_fit_is_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(changed)


def test_a_head_dim_beyond_the_kernels_is_named() -> None:
    wide = {name: torch.zeros(1, 1, 320) for name in ("q", "out")}
    caches = {name: torch.zeros(1, 1, 16, 320) for name in ("k_cache", "v_cache")}
    with pytest.raises(ValueError, match="head_dim is 320, the kernels go to 256"):
        call(wide | caches)
