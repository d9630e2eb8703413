"""Leaks with their owners, compaction, and a pool that becomes smaller."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infradoc_engine.core.block_pool import BlockPool
from infradoc_engine.core.clock import VirtualClock
from infradoc_engine.core.defragment import LeakedBlock, compaction, moves_of
from infradoc_engine.core.errors import IntegrityError, StepUnderWay
from infradoc_engine.core.kv_cache_manager import KVCacheManager
from infradoc_engine.core.request import Request
from infradoc_engine.core.scheduler.output import ScheduleOutput
from infradoc_engine.core.scheduler.scheduler import Scheduler

MakeRequests = Callable[..., list[Request]]
MakeScheduler = Callable[..., Scheduler]
RunStep = Callable[..., ScheduleOutput]


def hold(cache: KVCacheManager, request: Request) -> Request:
    """Blocks for all its tokens, computed and findable."""
    assert cache.allocate(request) is not None
    start, request.num_computed_tokens = request.num_computed_tokens, request.num_tokens
    cache.commit(request, start, request.num_tokens)
    return request


def test_a_leaked_block_names_its_last_owner_and_its_age(make_requests: MakeRequests) -> None:
    clock = VirtualClock(100.0)
    cache = KVCacheManager(10, 4, clock=clock)
    first, second = (hold(cache, request) for request in make_requests(2, 10))
    assert cache.leaked_blocks() == []
    leaking = cache.leak(2, second)
    assert leaking == second.block_table[-2:] and cache.ledger().leaked == 0, "in use until the request ends"
    clock.advance(5.0)
    cache.free(first)
    cache.free(second)
    clock.advance(2.0)
    assert cache.leaked_blocks() == [LeakedBlock(block, "r1", 7.0) for block in sorted(leaking)]
    assert cache.audit().leaked == 2
    cache.check_integrity(leaks_allowed=True)
    with pytest.raises(IntegrityError, match="leaked"):
        cache.check_integrity()


def test_the_last_of_several_sharers_is_the_owner(make_requests: MakeRequests) -> None:
    clock = VirtualClock()
    cache = KVCacheManager(10, 4, clock=clock)
    a, b = (hold(cache, request) for request in make_requests(2, 9, same_prompt=True))
    cache.leak(9, b)  # more than it has: all three
    for request, leaked in ((b, 1), (a, 3)):
        clock.advance(1.0)
        cache.free(request)
        assert len(cache.leaked_blocks()) == leaked
    assert [item.owner for item in cache.leaked_blocks()] == ["r0", "r0", "r1"]


def test_a_leak_of_idle_blocks_has_no_owner() -> None:
    clock = VirtualClock(3.0)
    cache = KVCacheManager(4, 4, clock=clock)
    assert cache.leak(9) == [0, 1, 2, 3] and cache.leak(1) == []
    clock.advance(1.0)
    assert [(item.owner, item.age_seconds) for item in cache.leaked_blocks()] == [("", 1.0)] * 4
    assert cache.usable_tokens == 0


def test_reclaimed_blocks_are_free_and_forget_their_content(make_requests: MakeRequests) -> None:
    cache = KVCacheManager(4, 4)
    request = hold(cache, make_requests(1, 12)[0])
    cache.leak(3, request)
    cache.free(request)
    assert cache.peek_hit_tokens(request) > 0
    assert [item.block for item in cache.reclaim_leaked()] == [0, 1, 2]
    assert cache.reclaim_leaked() == [] and cache.ledger().free == 4
    assert cache.peek_hit_tokens(request) == 0
    cache.check_integrity()
    with pytest.raises(IntegrityError, match="not in use"):
        cache.pool.reclaim(0)


def test_defragment_reclaims_and_packs_what_is_used_then_what_is_cached(make_requests: MakeRequests) -> None:
    cache = KVCacheManager(16, 4, clock=VirtualClock())
    gone, leaks, older, newer, stays = (hold(cache, request) for request in make_requests(5, 9))
    content = {request.request_id: list(request.block_table) for request in (stays, newer, older)}
    cache.leak(2, leaks)
    for request in (older, newer, gone, leaks):
        cache.free(request)
    assert stays.block_table == [12, 13, 14]
    done = cache.defragment()
    assert [(item.block, item.owner) for item in done.reclaimed] == [(4, "r1"), (5, "r1")]
    where = dict(done.moves)
    assert stays.block_table == [where[block] for block in content["r4"]] == [0, 1, 2]
    assert cache.block_map() == [("live", 3), ("cached", 7), ("free", 6)]
    assert len(set(where.values())) == len(where)
    assert set(where) & set(where.values()), "a cached block made way for one in use: sources are read first"
    for request in (older, newer, gone):
        assert cache.peek_hit_tokens(request) == 8, "found at their new places"
    cache.check_integrity()
    assert cache.defragment().moves == []


def test_hashes_and_eviction_order_follow_a_move() -> None:
    pool = BlockPool(6)
    for block in range(6):
        assert pool.allocate() == block
    for block in (5, 2, 4):
        pool.set_hash(block, bytes([block]))
    for block in (0, 5, 2, 4, 1):  # 3 stays in use
        pool.release(block)
    target = compaction(pool)
    assert sorted(moves_of(target, pool)) == [(3, 0), (4, 1), (5, 3)]
    pool.relocate(target)
    assert [pool.find(bytes([block])) for block in (5, 2, 4)] == list(pool.cached_order()) == [3, 2, 1]
    assert list(pool.free_order()) == [4, 5] and pool.ref_count(0) == 1
    pool.check_integrity()


def test_shrink_drops_cached_blocks_but_not_those_in_use(make_requests: MakeRequests) -> None:
    cache = KVCacheManager(12, 4)
    gone, stays = (hold(cache, request) for request in make_requests(2, 12))
    cache.free(gone)
    assert stays.block_table == [3, 4, 5]
    with pytest.raises(ValueError, match="2 of 3 blocks in use lie beyond 4: defragment first"):
        cache.shrink(4)
    with pytest.raises(ValueError, match="preempt"):
        cache.shrink(2)
    assert cache.num_blocks == 12 and cache.peek_hit_tokens(gone) == 11
    cache.defragment()
    cache.shrink(4)
    assert cache.num_blocks == 4 and stays.block_table == [0, 1, 2]
    assert cache.ledger().cached + cache.ledger().free == 1
    cache.check_integrity()
    for size in (4, 5, 0):
        with pytest.raises(ValueError, match="cannot shrink"):
            cache.shrink(size)
    cache.grow(6)
    cache.check_integrity()


def test_a_step_under_way_keeps_blocks_where_they_are(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler()
    scheduler.add(make_requests(1, 8, max_tokens=9)[0])
    output = scheduler.schedule()
    cache = scheduler.cache
    for change in (
        cache.defragment,
        lambda: cache.shrink(4),
        lambda: cache.set_host_blocks(4),
        lambda: scheduler.set_host_blocks(4),
        lambda: scheduler.replace_cache(cache),
    ):
        with pytest.raises(StepUnderWay, match="between two steps"):
            change()
    scheduler.update(output, {"r0": 1})
    cache.defragment()
    lost = scheduler.schedule()
    scheduler.abandon_step()
    cache.defragment()
    assert run_step(scheduler).scheduled == lost.scheduled


def test_requests_go_on_after_a_move(
    make_scheduler: MakeScheduler, make_requests: MakeRequests, run_step: RunStep
) -> None:
    scheduler = make_scheduler(12)
    a, b = make_requests(2, 10, max_tokens=6)
    scheduler.add(a)
    scheduler.add(b)
    run_step(scheduler)
    scheduler.abort("r0")
    moves = dict(scheduler.cache.defragment().moves)
    scheduler.cache.shrink(5)
    table = list(b.block_table)
    assert sorted(table) == [0, 1, 2] and moves
    item = run_step(scheduler).scheduled[0]
    assert (item.request_id, item.start, item.block_table) == ("r1", 10, table)
    while scheduler.has_work():
        run_step(scheduler)
    assert len(b.output_token_ids) == 6 and not b.preemptions
