from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from infradoc_engine import kv_cache
from infradoc_engine.kv_cache import KVCache, bytes_per_token
from infradoc_engine.memory import status_bytes
from infradoc_engine.weights.config import ModelConfig

CONFIG = ModelConfig("llama", 32, 3, 4, 2, 8, 48, 100, 1e4, 128, 1e-5, True)


def make(num_blocks: int = 4) -> KVCache:
    cache = KVCache(CONFIG, num_blocks, 16, torch.float32, torch.device("cpu"))
    for index, (k, v) in enumerate(cache.layers):
        for block in range(num_blocks):
            k[block], v[block] = 100 * index + block, -100 * index - block
    return cache


def contents(cache: KVCache, blocks: int) -> list[list[float]]:
    return [[float(part[block, 1, 7, 3]) for block in range(blocks)] for pair in cache.layers for part in pair]


def test_sizes() -> None:
    cache = make()
    assert bytes_per_token(CONFIG, torch.float32) == 2 * 3 * 2 * 8 * 4
    assert cache.num_bytes == 4 * 16 * bytes_per_token(CONFIG, torch.float32)


def test_growth_keeps_contents() -> None:
    cache = make()
    before = contents(cache, 4)
    cache.grow(9)
    assert cache.num_blocks == 9 and all(part.shape == (9, 2, 16, 8) for pair in cache.layers for part in pair)
    assert contents(cache, 4) == before
    with pytest.raises(ValueError, match="cannot shrink to 8"):
        cache.grow(8)


@pytest.mark.parametrize("failing_call", [1, 2, 5, 6])
def test_failed_growth_leaves_the_old_pool_whole(monkeypatch: pytest.MonkeyPatch, failing_call: int) -> None:
    cache = make()
    before, calls = contents(cache, 4), 0
    real = kv_cache.empty_pages

    def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == failing_call:
            raise RuntimeError("can't allocate memory")
        return real(shape, dtype, device)

    monkeypatch.setattr(kv_cache, "empty_pages", empty)
    with pytest.raises(RuntimeError, match="allocate"):
        cache.grow(9)
    monkeypatch.undo()
    assert cache.num_blocks == 4 and contents(cache, 4) == before
    assert all(part.shape[0] == 4 and part.is_contiguous() for pair in cache.layers for part in pair)
    cache.grow(9)
    assert contents(cache, 4) == before


def test_copies_read_before_they_write() -> None:
    cache = make()
    cache.copy_blocks([(0, 1), (1, 2)])
    assert contents(cache, 4)[0] == [0.0, 0.0, 1.0, 3.0]
    assert contents(cache, 4)[5] == [-200.0, -200.0, -201.0, -203.0]
    cache.copy_blocks([])


def test_shrinking_keeps_the_first_blocks() -> None:
    cache = make(6)
    before = contents(cache, 3)
    cache.shrink(3)
    assert cache.num_blocks == 3 and contents(cache, 3) == before
    assert cache.num_bytes == 3 * 16 * bytes_per_token(CONFIG, torch.float32)
    assert all(part.untyped_storage().nbytes() == part.nbytes for pair in cache.layers for part in pair)
    for wrong in (0, 4):
        with pytest.raises(ValueError, match="cannot shrink"):
            cache.shrink(wrong)
    cache.grow(6)
    assert contents(cache, 3) == before


def test_a_refused_first_layer_leaves_the_pool_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = make(6)
    before = contents(cache, 6)

    def refuse(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        raise MemoryError("can't allocate memory")

    monkeypatch.setattr(kv_cache, "empty_pages", refuse)
    with pytest.raises(MemoryError):
        cache.shrink(3)
    assert cache.num_blocks == 6 and contents(cache, 6) == before


@pytest.mark.parametrize("refused", [3, 4, 6])
def test_a_refused_later_layer_serves_its_first_blocks(monkeypatch: pytest.MonkeyPatch, refused: int) -> None:
    cache = make(6)
    before, calls, real = contents(cache, 3), 0, kv_cache.empty_pages

    def refuse(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == refused:
            raise MemoryError("can't allocate memory")
        return real(shape, dtype, device)

    monkeypatch.setattr(kv_cache, "empty_pages", refuse)
    cache.shrink(3)
    assert cache.num_blocks == 3 and contents(cache, 3) == before
    assert all(part.shape[0] == 3 and part.is_contiguous() for pair in cache.layers for part in pair)


def test_freed_tensors_go_back_to_the_system() -> None:
    before = status_bytes("VmData")
    if before is None:
        pytest.skip("needs /proc")
    held = [kv_cache.empty_pages((1 << 20,), torch.uint8, torch.device("cpu")) for _ in range(40)]
    view = held[7][100:200].view(torch.float32)  # an alias keeps its pages
    held.clear()
    grown = (status_bytes("VmData") or 0) - before
    assert grown < 4 << 20
    view.fill_(1.0)
    assert view.sum() == 25.0
