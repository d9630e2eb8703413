from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from infradoc_kernels import kv_cache_write as module


def check(
    kernel: Callable[..., Any],
    guarded: Any,
    heads: int,
    head_dim: int,
    block_size: int,
    dtype: torch.dtype = torch.float32,
    slots_dtype: torch.dtype = torch.int64,
    num_blocks: int = 5,
    tokens: int = 9,
) -> None:
    """Every slot holds exactly its token afterwards, every other value of the caches is still NaN."""
    generator = torch.Generator().manual_seed(heads * 10000 + head_dim * 100 + block_size)
    k_cache, v_cache = (guarded.empty(num_blocks, heads, block_size, head_dim, dtype=dtype) for _ in range(2))
    slots = guarded.copy(torch.randperm(num_blocks * block_size, generator=generator)[:tokens].to(slots_dtype))
    # Two unlike views: k from a fused projection, v from a buffer with gaps.
    k = guarded.empty(tokens, heads + 2, head_dim, dtype=dtype)[:, 1 : heads + 1]
    v = guarded.empty(tokens, heads + 3, head_dim + 3, dtype=dtype)[:, :heads, :head_dim]
    for x in (k, v):
        x.copy_(torch.randn(x.shape, generator=generator))
    slots[tokens // 2] = -1  # a padding row
    kernel(k, v, k_cache, v_cache, slots)
    guarded.check()
    for cache, x in ((k_cache, k), (v_cache, v)):
        expected = torch.full((num_blocks, heads, block_size, head_dim), torch.nan, dtype=dtype)
        for token, slot in enumerate(slots.tolist()):
            if slot >= 0:
                expected[slot // block_size, :, slot % block_size] = x[token]
        torch.testing.assert_close(cache, expected, atol=0, rtol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("heads", "head_dim", "block_size"), [(1, 1, 8), (3, 64, 16), (5, 80, 8), (2, 96, 32), (33, 128, 128), (4, 256, 64)]
)
def test_writes_exactly_the_slots(guarded: Any, heads: int, head_dim: int, block_size: int, dtype: torch.dtype) -> None:
    check(module.kv_cache_write, guarded, heads, head_dim, block_size, dtype)


@pytest.mark.parametrize("seed", range(6))
def test_random_shapes(guarded: Any, seed: int) -> None:
    pick = random.Random(seed)
    num_blocks, block_size = pick.randint(1, 6), pick.choice([8, 16, 32])
    tokens = pick.randint(1, num_blocks * block_size)
    sizes = pick.randint(1, 12), pick.randint(1, 130)
    check(module.kv_cache_write, guarded, *sizes, block_size, num_blocks=num_blocks, tokens=tokens)


def test_slots_may_be_32_bits(guarded: Any) -> None:
    check(module.kv_cache_write, guarded, 3, 8, 16, slots_dtype=torch.int32)


def test_no_tokens_write_nothing() -> None:
    caches = torch.zeros(2, 1, 8, 4), torch.zeros(2, 1, 8, 4)
    module.kv_cache_write(torch.zeros(0, 1, 4), torch.zeros(0, 1, 4), *caches, torch.zeros(0, dtype=torch.int64))
    assert not caches[0].any() and not caches[1].any()


def check_large_slots(kernel: Callable[..., Any], virtual: Any, dtype: torch.dtype = torch.int64) -> None:
    """A pool of 3 * 2^31 values; block ids times stride that wrap around in 32 bits land below or in block 0."""
    heads, block_size, head_dim = 4, 16, 64
    per_block = heads * block_size * head_dim
    num_blocks = 3 * 2**31 // per_block
    k_cache, v_cache = (
        virtual(num_blocks * per_block + 2**31, torch.bfloat16)[2**31 :].view(num_blocks, heads, block_size, head_dim)
        for _ in range(2)
    )
    blocks = [2**31 // per_block, 2**31 // per_block + 1, 2**32 // per_block + 5, num_blocks - 1]
    slots = torch.tensor([block * block_size + 7 for block in blocks], dtype=dtype)
    k = torch.arange(1, 4 * heads * head_dim + 1).view(4, heads, head_dim).bfloat16()
    kernel(k, -k, k_cache, v_cache, slots)
    for token, block in enumerate(blocks):
        assert torch.equal(k_cache[block, :, 7], k[token]) and torch.equal(v_cache[block, :, 7], -k[token])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_slots_beyond_32_bits(virtual: Any, dtype: torch.dtype) -> None:
    check_large_slots(module.kv_cache_write, virtual, dtype)


def check_large_inputs(kernel: Callable[..., Any], virtual: Any) -> None:
    """Tokens, then heads, 2^30 values apart in k and v."""
    flat = virtual(2**33, torch.bfloat16)
    for strides in ((2**30, 8, 1), (8, 2**30, 1)):
        k = flat[2**31 :].as_strided((3, 3, 8), strides)
        k.copy_(torch.arange(72).view(3, 3, 8) + 1.0)
        k_cache, v_cache = torch.zeros(1, 3, 8, 8).bfloat16(), torch.zeros(1, 3, 8, 8).bfloat16()
        kernel(k, k, k_cache, v_cache, torch.arange(3))
        assert torch.equal(k_cache[0, :, :3].transpose(0, 1), k) and torch.equal(v_cache, k_cache)


def test_inputs_beyond_32_bits(virtual: Any) -> None:
    check_large_inputs(module.kv_cache_write, virtual)


@pytest.mark.parametrize(
    "snippet", ["tl.program_id(0).to(tl.int64)", "tl.arange(0, BLOCK_HEADS)).to(tl.int64)"], ids=["token", "head"]
)
def test_a_kernel_that_counts_in_32_bits_fails(virtual: Any, mutate: Any, snippet: str) -> None:
    wrong = mutate(module, snippet, snippet.removesuffix(".to(tl.int64)")).kv_cache_write
    with pytest.raises(AssertionError):
        check_large_inputs(wrong, virtual)


def test_a_kernel_with_slots_in_32_bits_fails(virtual: Any, mutate: Any) -> None:
    wrong = mutate(module, "tl.load(slots_ptr + token).to(tl.int64)", "tl.load(slots_ptr + token).to(tl.int32)")
    with pytest.raises(AssertionError):
        check_large_slots(wrong.kv_cache_write, virtual)


@pytest.mark.parametrize(
    ("snippet", "replacement"),
    [
        ("(head < num_kv_heads)[:, None]", "(head < BLOCK_HEADS)[:, None]"),
        ("(dim < head_dim)[None, :]", "(dim < BLOCK_DIM)[None, :]"),
        ("(dim < head_dim)[None, :]", "(dim < head_dim - 1)[None, :]"),
        ("if slot >= 0:", "if slot >= -1:"),
        ("token * stride_v_token", "token * stride_k_token"),
        ("head[:, None] * stride_v_head", "head[:, None] * stride_k_head"),
        ("(slot // BLOCK_SIZE) * stride_block", "(slot // BLOCK_SIZE) * stride_cache_head"),
        ("(slot % BLOCK_SIZE) * stride_offset", "(slot % BLOCK_SIZE)"),
        ("head[:, None] * stride_cache_head", "head[:, None] * stride_offset"),
        ("tl.store(v_cache_ptr + target, v", "tl.store(v_cache_ptr + target, k"),
    ],
)
def test_a_wrong_kernel_fails(guarded: Any, mutate: Any, snippet: str, replacement: str) -> None:
    wrong = mutate(module, snippet, replacement).kv_cache_write
    check(module.kv_cache_write, guarded, 3, 12, 8)
    with pytest.raises(AssertionError):
        check(wrong, guarded, 3, 12, 8)


CACHE = torch.zeros(2, 3, 8, 4)
NEW = torch.zeros(5, 3, 4)
SLOTS = torch.arange(5)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"k": torch.zeros(5, 2, 4)}, r"k has shape \(5, 2, 4\), it must be \[\*, 3, 4\]"),
        ({"v": torch.zeros(4, 3, 4)}, r"v has shape \(4, 3, 4\)"),
        ({"v_cache": torch.zeros(3, 3, 8, 4)}, r"v_cache has shape \(3, 3, 8, 4\)"),
        ({"v_cache": torch.zeros(2, 8, 3, 4).transpose(1, 2)}, "v_cache .* they must be the same"),
        ({"slots": torch.arange(4)}, r"slots has shape \(4,\), it must be \[5\]"),
        ({"slots": SLOTS.float()}, "slots is torch.float32, it must be torch.int64 or torch.int32"),
        ({"k": NEW.half()}, "k is torch.float16, it must be torch.float32"),
        ({"v": torch.zeros(5, 4, 3).transpose(1, 2)}, r"v has strides \(12, 1, 3\)"),
    ],
)
def test_what_does_not_fit_is_named(changed: dict[str, Any], message: str) -> None:
    arguments = {"k": NEW, "v": NEW, "k_cache": CACHE, "v_cache": CACHE.clone(), "slots": SLOTS} | changed
    with pytest.raises(ValueError, match=message):
        module.kv_cache_write(**arguments)
