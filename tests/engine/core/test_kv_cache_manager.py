"""Blocks for requests: admission with hits, copy-on-write, growth slot by slot, return."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infradoc_engine.core.errors import IntegrityError
from infradoc_engine.core.kv_cache_manager import Allocation, KVCacheManager
from infradoc_engine.core.request import Request

MakeRequests = Callable[..., list[Request]]


def admit(cache: KVCacheManager, request: Request) -> Allocation:
    """Admit and compute all known tokens."""
    allocation = cache.allocate(request)
    assert allocation is not None
    start, request.num_computed_tokens = request.num_computed_tokens, request.num_tokens
    cache.commit(request, start, request.num_tokens)
    cache.check_integrity()
    return allocation


def test_blocks_cover_the_tokens_exactly(make_requests: MakeRequests) -> None:
    cache = KVCacheManager(8, 4)
    for request, blocks in zip([make_requests(1, n, prefix=f"n{n}-")[0] for n in (1, 4, 5)], (1, 1, 2), strict=True):
        admit(cache, request)
        assert len(request.block_table) == blocks


def test_a_partial_hit_shares_full_blocks_only(make_requests: MakeRequests) -> None:
    cache = KVCacheManager(8, 4)
    a, b = make_requests(2, 10, same_prompt=True)
    admit(cache, a)
    assert admit(cache, b) == Allocation(8, None)
    assert a.block_table[:2] == b.block_table[:2] and a.block_table[2] != b.block_table[2]
    cache.free(a)
    cache.check_integrity()
    assert cache.ledger().live == 3


def test_a_full_hit_leaves_the_last_token_to_compute_in_a_private_copy(make_requests: MakeRequests) -> None:
    cache = KVCacheManager(8, 4)
    a, b = make_requests(2, 8, same_prompt=True)
    admit(cache, a)
    assert cache.peek_hit_tokens(b) == 7
    assert admit(cache, b) == Allocation(7, (a.block_table[1], b.block_table[1]))
    assert a.block_table[0] == b.block_table[0] and a.block_table[1] != b.block_table[1]
    assert cache.pool.hash_of(b.block_table[1]) is None  # the content is known under the first block


def test_a_full_hit_on_a_cached_block_copies_and_keeps_it(make_requests: MakeRequests) -> None:
    cache = KVCacheManager(3, 4)
    a, b = make_requests(2, 8, same_prompt=True)
    admit(cache, a)
    source = a.block_table[1]
    cache.free(a)
    assert admit(cache, b).block_copy == (source, b.block_table[1])
    assert cache.ledger().cached == 1


def test_a_full_hit_with_no_block_to_spare_takes_the_cached_one_over(make_requests: MakeRequests) -> None:
    cache = KVCacheManager(2, 4)
    a, b = make_requests(2, 8, same_prompt=True)
    admit(cache, a)
    table = list(a.block_table)
    cache.free(a)
    assert admit(cache, b) == Allocation(7, None)
    assert b.block_table == table


def test_a_full_hit_on_a_block_in_use_waits_when_the_copy_has_no_place(make_requests: MakeRequests) -> None:
    cache = KVCacheManager(2, 4)
    a, b = make_requests(2, 8, same_prompt=True)
    admit(cache, a)
    assert cache.allocate(b) is None
    assert not b.block_table and b.num_computed_tokens == 0
    cache.check_integrity()


def test_a_hit_on_cached_blocks_counts_against_the_room(make_requests: MakeRequests) -> None:
    cache = KVCacheManager(4, 4, watermark=0.25)
    a, b = make_requests(2, 12, same_prompt=True)
    admit(cache, a)
    cache.free(a)
    b.prompt_token_ids.append(1)  # 3 hits revived and 1 new block: the whole pool, reserve included
    assert cache.allocate(b) is None
    assert cache.allocate(b, use_reserve=True) == Allocation(12, None)
    cache.check_integrity()


def test_a_slot_is_given_once_per_token(make_requests: MakeRequests) -> None:
    cache = KVCacheManager(2, 4)
    request = make_requests(1, 3)[0]
    admit(cache, request)
    for computed, blocks, waste in ((3, 1, 0), (4, 2, 3), (5, 2, 2)):
        request.output_token_ids.append(computed)
        assert cache.append_slot(request) and cache.append_slot(request)
        assert (len(request.block_table), cache.ledger().tail_waste_tokens) == (blocks, waste)
        cache.check_integrity()
        request.num_computed_tokens += 1
    request.num_computed_tokens = 8
    assert not cache.append_slot(request)


def test_slots_may_use_the_reserve(make_requests: MakeRequests) -> None:
    cache = KVCacheManager(4, 4, watermark=0.5)
    a, b = make_requests(2, 8)
    admit(cache, a)
    assert cache.allocate(b) is None
    assert cache.append_slot(a)
    assert cache.audit().reserved == 1


def test_free_is_idempotent_and_opens_no_second_table(make_requests: MakeRequests) -> None:
    cache = KVCacheManager(4, 4)
    a, b = make_requests(2, 8)
    admit(cache, a)
    with pytest.raises(IntegrityError, match="already"):
        cache._tables.open(a, [], 0)
    cache.free(a)
    cache.free(a)
    cache.free(b)  # never had any
    cache.check_integrity()
    assert cache.usage == 0.0


def test_the_end_of_a_prefix_is_evicted_before_its_start(make_requests: MakeRequests) -> None:
    cache = KVCacheManager(3, 4)
    a, b = make_requests(2, 12, same_prompt=True)
    admit(cache, a)
    cache.free(a)
    cache.pool.allocate()
    assert cache.peek_hit_tokens(b) == 8


def test_growth_keeps_content_and_tables(make_requests: MakeRequests) -> None:
    cache = KVCacheManager(2, 4)
    a, b = make_requests(2, 8, same_prompt=True)
    admit(cache, a)
    assert cache.allocate(b) is None
    cache.grow(3)
    assert admit(cache, b).num_hit_tokens == 7
    assert cache.num_blocks == 3 and cache.usable_tokens == 12


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        KVCacheManager(4, 0)
    with pytest.raises(ValueError, match="only grow"):
        KVCacheManager(4, 4).grow(4)
