"""The host tier: what goes out comes back, whatever happened to the device blocks meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infradoc_engine import kv_host
from infradoc_engine.kv_cache import KVCache
from infradoc_engine.kv_host import HostTier
from infradoc_engine.weights.config import ModelConfig

CONFIG = ModelConfig("llama", 32, 3, 4, 2, 8, 48, 100, 1e4, 128, 1e-5, True)


def make(num_blocks: int = 6, host_blocks: int = 4) -> tuple[KVCache, HostTier]:
    cache = KVCache(CONFIG, num_blocks, 16, torch.float32, torch.device("cpu"))
    for index, (k, v) in enumerate(cache.layers):
        for block in range(num_blocks):
            k[block], v[block] = 100 * index + block, -100 * index - block
    tier = HostTier(cache)
    tier.resize(host_blocks)
    return cache, tier


def values(cache: KVCache, block: int) -> list[float]:
    return [float(part[block, 1, 7, 3]) for pair in cache.layers for part in pair]


def test_blocks_survive_in_host_memory() -> None:
    cache, tier = make()
    wanted = {block: values(cache, block) for block in (1, 4)}
    tier.swap_out([(1, 3), (4, 0)])
    for pair in cache.layers:
        for part in pair:
            part.fill_(float("nan"))
    tier.swap_in([(3, 2), (0, 5)])
    assert values(cache, 2) == wanted[1] and values(cache, 5) == wanted[4]
    assert tier.block_bytes == 16 * 2 * 3 * 2 * 8 * 4
    assert tier.bytes_out == tier.bytes_in == 2 * tier.block_bytes
    assert tier.num_bytes == 4 * tier.block_bytes


def test_a_new_size_keeps_what_stays() -> None:
    cache, tier = make()
    tier.swap_out([(5, 1)])
    tier.resize(9)
    tier.resize(2)
    tier.swap_in([(1, 0)])
    assert values(cache, 0) == values(cache, 5) and tier.num_blocks == 2


def test_a_refused_size_leaves_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    _, tier = make()
    calls = 0

    def refuse_third(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise MemoryError("can't allocate memory")
        return torch.empty(tuple(shape), dtype=dtype)

    monkeypatch.setattr(kv_host, "empty_pages", refuse_third)
    with pytest.raises(MemoryError):
        tier.resize(10)
    assert tier.num_blocks == 4


def test_another_pool_starts_with_an_empty_tier() -> None:
    _, tier = make()
    tier.attach(KVCache(CONFIG, 3, 32, torch.float32, torch.device("cpu")))
    assert tier.num_blocks == 0 and tier.block_bytes == 32 * 2 * 3 * 2 * 8 * 4


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=12))
def test_out_then_in_is_the_identity(moves: list[tuple[int, int]]) -> None:
    cache, tier = make()
    last: dict[int, list[float]] = {}
    for device_block, host_block in moves:
        tier.swap_out([(device_block, host_block)])
        last[host_block] = values(cache, device_block)
    for host_block, wanted in last.items():
        tier.swap_in([(host_block, 0)])
        assert values(cache, 0) == wanted
