from __future__ import annotations

import pytest
import torch

from infradoc_kernels import ops


@pytest.mark.parametrize("block_size", [8, 16, 128])
@pytest.mark.parametrize("given_rows", [True, False])
def test_writes_exactly_the_slots(block_size: int, given_rows: bool) -> None:
    generator = torch.Generator().manual_seed(block_size)
    shape = (7, 3, block_size, 5)
    k_cache, v_cache = (torch.full(shape, torch.nan) for _ in range(2))
    slots = torch.randperm(7 * block_size, generator=generator)[:20]
    k, v = (torch.randn(20, 3, 5, generator=generator) for _ in range(2))
    rows = ops.cache_rows(slots, 3, block_size) if given_rows else None
    ops.kv_cache_write(k, v, k_cache, v_cache, slots, rows)
    for i, slot in enumerate(slots.tolist()):
        assert torch.equal(k_cache[slot // block_size, :, slot % block_size], k[i])
        assert torch.equal(v_cache[slot // block_size, :, slot % block_size], v[i])
    assert int((~k_cache.isnan()).sum()) == int((~v_cache.isnan()).sum()) == 20 * 3 * 5


def test_takes_slices_of_a_fused_projection() -> None:
    fused = torch.randn(4, 10, 8)
    k_cache, v_cache = torch.zeros(2, 3, 8, 8), torch.zeros(2, 3, 8, 8)
    ops.kv_cache_write(fused[:, 4:7], fused[:, 7:], k_cache, v_cache, torch.tensor([0, 1, 8, 15]))
    assert torch.equal(k_cache[1, :, 7], fused[3, 4:7])
    assert torch.equal(v_cache[0, :, 1], fused[1, 7:])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_rows_pass_32_bits(dtype: torch.dtype) -> None:
    slots = torch.tensor([2**31 - 1], dtype=dtype)
    rows = ops.cache_rows(slots, 8, 16)
    block = (2**31 - 1) // 16
    assert rows.dtype == torch.int64
    assert rows.tolist() == [(block * 8 + head) * 16 + 15 for head in range(8)]
    assert int(rows[-1]) > 2**33
