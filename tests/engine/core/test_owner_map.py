"""Who holds each block and for how long: against a model of the tables, and within the size of an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_engine.core.clock import VirtualClock
from infradoc_engine.core.kv_cache_manager import KVCacheManager
from infradoc_engine.core.owner_map import MOST_ROWS, name_blocks, owner_map
from infradoc_engine.core.request import Request

MakeRequests = Callable[..., list[Request]]
OPERATIONS = st.tuples(st.sampled_from(["open", "grow", "close", "wait", "leak", "tidy"]), st.integers(0, 7))
PAIRS = st.lists(st.one_of(st.just((None, None)), st.tuples(st.sampled_from([*"abc", None]), st.integers(0, 3))))


def by_block(cache: KVCacheManager) -> list[tuple[str | None, float | None]]:
    """(owner, age) of each block."""
    told = cache.holders().rows()
    assert told.step == 1
    return [(owner, age) for owner, age, blocks in told.rows for _ in range(blocks)]


@given(st.lists(OPERATIONS, max_size=40))
def test_owners_and_ages_agree_with_the_tables_after_any_steps(operations: list[tuple[str, int]]) -> None:
    clock = VirtualClock(3.0)
    cache = KVCacheManager(9, 2, clock=clock)
    requests: dict[str, Request] = {}
    taken: dict[int, float] = {}  # block -> when it came into use, kept by what the tables show
    number = 0
    for what, pick in operations:
        names = sorted(requests)
        chosen = requests[names[pick % len(names)]] if names else None
        if what == "open":
            number += 1
            made = Request(f"r{number}", [pick % 2] * (1 + pick), 50)
            if cache.allocate(made):
                cache.commit(made, made.num_computed_tokens, made.num_tokens)
                made.num_computed_tokens = made.num_tokens
                requests[made.request_id] = made
        elif what == "grow" and chosen and cache.append_slot(chosen):
            chosen.output_token_ids.append(1)
            chosen.num_computed_tokens += 1
        elif what == "close" and chosen:
            cache.free(requests.pop(chosen.request_id))
        elif what == "wait":
            clock.advance(pick / 4)
        elif what == "leak":
            cache.leak(1, chosen if pick % 2 else None)
        elif what == "tidy" and pick == 0:
            cache.reclaim_leaked()
        leaked = {item.block: item.owner or None for item in cache.leaked_blocks()}
        held: dict[int, list[str]] = {}
        for request in requests.values():
            for block in request.block_table:
                held.setdefault(block, []).append(request.request_id)
        in_use = held.keys() | leaked.keys()
        taken = {block: taken.get(block, clock.now()) for block in in_use}
        for block, (owner, age) in enumerate(by_block(cache)):
            if block in held:
                ids = held[block]
                assert owner == (ids[0] if len(ids) == 1 else f"{len(ids)} requests")
            else:
                assert owner == leaked.get(block)
            assert age == (round(clock.now() - taken[block], 1) if block in in_use else None)


def test_a_block_ages_from_its_first_holder_on_and_anew_after_it_was_idle(make_requests: MakeRequests) -> None:
    clock = VirtualClock()
    cache = KVCacheManager(4, 4, clock=clock)
    first, second, third = (make_requests(1, 6, same_prompt=True, prefix=name)[0] for name in "abc")
    cache.allocate(first)
    cache.commit(first, 0, 6)
    clock.advance(10)
    cache.allocate(second)
    assert by_block(cache) == [("2 requests", 10.0), ("a0", 10.0), ("b0", 0.0), (None, None)]
    cache.free(first)
    clock.advance(5)
    assert by_block(cache) == [("b0", 15.0), (None, None), ("b0", 5.0), (None, None)]
    cache.free(second)
    cache.allocate(third)
    assert by_block(cache)[0] == ("c0", 0.0)


def test_ages_and_owners_follow_their_blocks_to_new_places(make_requests: MakeRequests) -> None:
    clock = VirtualClock()
    cache = KVCacheManager(8, 4, prefix_caching=False, clock=clock)
    gone, stays = make_requests(2, 12)
    cache.allocate(gone)
    clock.advance(2)
    cache.allocate(stays)
    clock.advance(1)
    cache.free(gone)
    cache.grow(12)
    cache.defragment()
    assert cache.holders().rows().rows == [("r1", 1.0, 3), (None, None, 9)]
    cache.shrink(4)
    assert cache.holders().rows().rows == [("r1", 1.0, 3), (None, None, 1)]


@given(PAIRS.filter(bool), st.integers(1, 12))
def test_rows_cover_the_pool_and_are_never_too_many(pairs: list[tuple[Any, Any]], most: int) -> None:
    names, since = [name for name, _ in pairs], [taken for _, taken in pairs]
    told = owner_map(names, since, 5.0, most)
    assert sum(blocks for _, _, blocks in told.rows) == len(pairs) and len(told.rows) <= most
    assert all(age is None or age >= 0 for _, age, _ in told.rows)
    aged = [(name, None if taken is None else 5.0 - taken) for name, taken in pairs]
    if told.step == 1:
        assert [(owner, age) for owner, age, blocks in told.rows for _ in range(blocks)] == aged
        return
    for place, (owner, age, _) in enumerate(told.rows):
        group = aged[place * told.step : (place + 1) * told.step]
        held = [name for name, a in group if a is not None]
        assert held.count(owner) == max((held.count(name) for name in held), default=0)
        assert age == max((a for name, a in group if name == owner and a is not None), default=None)


def test_a_clock_that_lags_gives_no_negative_age() -> None:
    assert owner_map(["a"], [9.0], 5.0).rows == [("a", 0.0, 1)]


def test_the_largest_pool_in_which_no_two_neighbours_are_alike_stays_within_the_bound() -> None:
    names = [f"req-{block % 256}" for block in range(100_000)]
    told = owner_map(names, [float(block) for block in range(100_000)], 1e5)
    assert len(told.rows) == MOST_ROWS and told.step == 10


@pytest.mark.parametrize(
    ("tables", "names"),
    [
        ([], [None, None]),
        ([("a", [1])], [None, "a"]),
        ([("a", [0, 1]), ("b", [0]), ("c", [0])], ["3 requests", "a"]),
    ],
)
def test_names(tables: list[tuple[str, list[int]]], names: list[str | None]) -> None:
    assert name_blocks(2, tables) == names
