"""Chained hashes over full blocks."""

from __future__ import annotations

from infradoc_engine.core.block_pool import BlockPool
from infradoc_engine.core.prefix_cache import PrefixCache, block_digest
from infradoc_engine.core.request import Request


def computed(cache: PrefixCache, pool: BlockPool, tokens: list[int], name: str = "a") -> Request:
    """A request whose tokens are all computed, in blocks of its own, and registered."""
    request = Request(name, tokens, 1)
    request.block_table = [pool.allocate() for _ in range(-(-len(tokens) // 2))]
    cache.register(request, 0, len(tokens))
    return request


def test_digest_depends_on_all_that_came_before() -> None:
    root = block_digest(b"", [1, 2])
    assert root == block_digest(b"", [1, 2])
    assert len({root, block_digest(b"", [2, 1]), block_digest(root, [1, 2]), block_digest(b"", [1]), b""}) == 5


def test_match_stops_at_the_first_difference_and_at_the_last_full_block() -> None:
    pool = BlockPool(8)
    cache = PrefixCache(pool, 2)
    first = computed(cache, pool, [1, 2, 3, 4, 5])
    assert cache.match(Request("b", [1, 2, 3, 4, 5], 1)) == first.block_table[:2]
    assert cache.match(Request("c", [1, 2, 3, 9, 5], 1)) == first.block_table[:1]
    assert cache.match(Request("d", [3, 4], 1)) == []
    assert cache.match(Request("e", [1], 1)) == []


def test_match_follows_output_tokens_too() -> None:
    pool = BlockPool(8)
    cache = PrefixCache(pool, 2)
    first = computed(cache, pool, [1, 2, 3, 4])
    again = Request("b", [1], 9, output_token_ids=[2, 3, 4])
    assert cache.match(again) == first.block_table


def test_a_gap_in_the_chain_ends_the_match() -> None:
    pool = BlockPool(2)
    cache = PrefixCache(pool, 2)
    first = computed(cache, pool, [1, 2, 3, 4])
    for block in first.block_table:
        pool.release(block)  # the first block is the older one: evicted first
    pool.allocate()
    assert cache.match(Request("b", [1, 2, 3, 4], 1)) == []


def test_a_copy_of_known_content_stays_private() -> None:
    pool = BlockPool(4)
    cache = PrefixCache(pool, 2)
    first, second = computed(cache, pool, [1, 2]), computed(cache, pool, [1, 2], "b")
    assert cache.match(Request("c", [1, 2], 1)) == first.block_table
    assert pool.hash_of(second.block_table[0]) is None


def test_only_blocks_that_became_full_are_registered() -> None:
    pool = BlockPool(4)
    cache = PrefixCache(pool, 2)
    request = Request("a", [1, 2, 3, 4], 1, block_table=[pool.allocate(), pool.allocate()])
    cache.register(request, 0, 1)
    assert cache.match(request) == []
    cache.register(request, 1, 3)
    assert cache.match(request) == request.block_table[:1]
    cache.register(request, 3, 4)
    assert cache.match(request) == request.block_table


def test_switched_off_it_forgets_and_on_it_starts_anew() -> None:
    pool = BlockPool(4)
    cache = PrefixCache(pool, 2)
    first = computed(cache, pool, [1, 2])
    cache.enabled = False
    assert cache.match(Request("b", [1, 2], 1)) == [] and pool.hash_of(first.block_table[0]) is None
    computed(cache, pool, [3, 4], "c")
    cache.enabled = True
    assert cache.match(Request("b", [1, 2], 1)) == [] and cache.match(Request("d", [3, 4], 1)) == []
    pool.check_integrity()


def test_forget_drops_the_chain_not_the_blocks() -> None:
    pool = BlockPool(4)
    cache = PrefixCache(pool, 2)
    first = computed(cache, pool, [1, 2])
    assert cache.num_chains == 1
    cache.forget("a")
    assert cache.num_chains == 0
    assert cache.match(Request("a", [1, 2], 1)) == first.block_table
