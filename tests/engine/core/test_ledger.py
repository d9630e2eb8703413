"""The six states: counted along the way, recomputed by the audit, equal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infradoc_engine.core.clock import VirtualClock
from infradoc_engine.core.errors import IntegrityError
from infradoc_engine.core.kv_cache_manager import KVCacheManager
from infradoc_engine.core.ledger import BLOCK_STATES
from infradoc_engine.core.request import Request

MakeRequests = Callable[..., list[Request]]


@pytest.fixture
def mixed(make_requests: MakeRequests) -> KVCacheManager:
    """Ten blocks of 4: two shared, one live for each of two requests, one cached, one leaked, four idle."""
    cache = KVCacheManager(10, 4, clock=VirtualClock(7.0))
    gone, *both = [r for n in ("a", "b", "c") for r in make_requests(1, 10, same_prompt=True, prefix=n)]
    gone.prompt_token_ids += [5, 5]
    for request in (gone, *both):
        assert cache.allocate(request)
        cache.commit(request, 0, request.num_tokens)
    cache.free(gone)
    cache.pool.allocate()
    return cache


def test_each_block_has_one_state(mixed: KVCacheManager) -> None:
    ledger = mixed.ledger()
    assert ledger.by_state() == {"free": 4, "live": 2, "cached": 1, "shared": 2, "reserved": 0, "leaked": 1}
    assert ledger.num_blocks == 10 and ledger.time == 7.0
    assert ledger.tail_waste_tokens == 2 * 2 and ledger.allocated_tokens == 16
    assert ledger.fragmentation_ratio == 0.25 and ledger.usage_ratio == mixed.usage == 0.5
    assert mixed.audit() == ledger


def test_block_map_and_owners_agree_with_the_counts(mixed: KVCacheManager) -> None:
    states = [state for state, length in mixed.block_map() for _ in range(length)]
    assert {s: states.count(s) for s in BLOCK_STATES} == mixed.ledger().by_state()
    owners = mixed.owners()
    assert sorted(b for b, ids in owners.items() if ids == ["b0", "c0"]) == [
        b for b, state in enumerate(states) if state == "shared"
    ]
    assert sorted(ids for ids in owners.values() if len(ids) == 1) == [["b0"], ["c0"]]


@pytest.mark.parametrize(
    ("watermark", "free", "cached", "reserved"), [(0.3, 1, 1, 3), (0.4, 0, 1, 4), (0.5, 0, 0, 5), (0.9, 0, 0, 5)]
)
def test_the_reserve_takes_free_blocks_then_cached_ones(
    mixed: KVCacheManager, watermark: float, free: int, cached: int, reserved: int
) -> None:
    mixed.watermark = watermark
    ledger = mixed.audit()
    assert (ledger.free, ledger.cached, ledger.reserved) == (free, cached, reserved)
    assert mixed.available_blocks == ledger.available_blocks == free + cached
    assert mixed.usage == ledger.usage_ratio == 1 - (free + cached) / 10


def test_watermark_blocks_do_not_suffer_from_binary_fractions() -> None:
    assert KVCacheManager(100, 4, watermark=0.29).watermark_blocks == 29
    with pytest.raises(ValueError, match="watermark"):
        KVCacheManager(10, 4, watermark=1.0)


def test_a_leak_is_counted_and_fails_the_integrity_check(mixed: KVCacheManager) -> None:
    assert mixed.audit().leaked == 1
    with pytest.raises(IntegrityError, match="leaked"):
        mixed.check_integrity()


def test_a_lost_table_leaks_its_blocks(make_requests: MakeRequests) -> None:
    cache = KVCacheManager(4, 4)
    request = make_requests(1, 10)[0]
    cache.allocate(request)
    assert cache._tables.close(request)  # references are not dropped
    assert cache.audit().leaked == 3 and cache.usable_tokens == 4


@pytest.mark.parametrize("name", ["live", "shared"])
def test_a_wrong_count_is_found(make_requests: MakeRequests, name: str) -> None:
    cache = KVCacheManager(4, 4)
    cache.allocate(make_requests(1, 10)[0])
    setattr(cache._ledger, name, getattr(cache._ledger, name) + 1)
    with pytest.raises(IntegrityError, match=f"are {name}"):
        cache.audit()


def test_an_extra_reference_is_found(make_requests: MakeRequests) -> None:
    cache = KVCacheManager(4, 4)
    request = make_requests(1, 4)[0]
    cache.allocate(request)
    cache.pool.touch(request.block_table[0])
    with pytest.raises(IntegrityError, match="2 references but is in 1 block tables"):
        cache.check_integrity()
