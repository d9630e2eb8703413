"""Free list, reference counts, hashes and eviction order of the block pool."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_engine.core.block_pool import BlockPool
from infradoc_engine.core.errors import IntegrityError, NoFreeBlocks


def cached(pool: BlockPool, *digests: bytes) -> list[int]:
    """Blocks with these hashes and no reference, the first one the least recently used."""
    blocks = [pool.allocate() for _ in digests]
    for block, digest in zip(blocks, digests, strict=True):
        assert pool.set_hash(block, digest)
    for block in blocks:
        pool.release(block)
    return blocks


def test_a_reused_block_is_not_found_by_its_old_hash() -> None:
    """nano-vllm #163: the stale hash gave a later request the KV of other tokens."""
    pool = BlockPool(1)
    cached(pool, b"old")
    block = pool.allocate()
    assert pool.find(b"old") is None
    assert pool.set_hash(block, b"new")
    pool.release(block)
    assert pool.find(b"old") is None and pool.find(b"new") == block
    pool.check_integrity()


def test_free_blocks_go_before_cached_ones_and_those_in_lru_order() -> None:
    pool = BlockPool(3)
    a, b = cached(pool, b"a", b"b")
    pool.touch(a)
    pool.release(a)  # used again: now b is the oldest
    assert [pool.allocate() for _ in range(3)] == [2, b, a]
    with pytest.raises(NoFreeBlocks):
        pool.allocate()


def test_refresh_saves_a_cached_block_from_eviction() -> None:
    pool = BlockPool(2)
    a, b = cached(pool, b"a", b"b")
    pool.refresh(a)
    assert pool.allocate() == b


def test_a_touched_block_is_not_evicted_and_returns_with_its_hash() -> None:
    pool = BlockPool(2)
    a, b = cached(pool, b"a", b"b")
    pool.touch(a)
    assert pool.num_used == 1 and pool.allocate() == b
    pool.release(a)
    assert pool.find(b"a") == a and pool.num_cached == 1
    pool.check_integrity()


def test_the_first_block_keeps_a_content_that_two_have() -> None:
    pool = BlockPool(2)
    first, second = pool.allocate(), pool.allocate()
    assert pool.set_hash(first, b"same")
    assert not pool.set_hash(second, b"same")
    pool.release(second)
    assert pool.find(b"same") == first and pool.num_free == 1
    pool.check_integrity()


@pytest.mark.parametrize("misuse", ["release", "touch", "set_hash"])
def test_misuse_of_a_free_block_is_refused(misuse: str) -> None:
    pool = BlockPool(2)
    with pytest.raises(IntegrityError):
        pool.set_hash(0, b"x") if misuse == "set_hash" else getattr(pool, misuse)(0)
    pool.check_integrity()


def test_clear_hashes_frees_what_was_only_cached() -> None:
    pool = BlockPool(3)
    a, _ = cached(pool, b"a", b"b")
    pool.touch(a)
    pool.clear_hashes()
    assert (pool.num_free, pool.num_cached, pool.num_used) == (2, 0, 1)
    pool.release(a)
    assert pool.num_free == 3 and pool.find(b"a") is None
    pool.check_integrity()


def test_growth_adds_free_blocks_and_nothing_else() -> None:
    pool = BlockPool(1)
    pool.allocate()
    pool.grow(3)
    assert pool.num_free == 2 and sorted([pool.allocate(), pool.allocate()]) == [1, 2]
    with pytest.raises(ValueError, match="only grow"):
        pool.grow(3)
    with pytest.raises(ValueError, match="at least one"):
        BlockPool(0)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda pool: pool._free.append(0), "free and in use"),
        (lambda pool: pool._free.append(1), "twice in the free list"),
        (lambda pool: pool._cached.update({1: None}), "free and cached"),
        (lambda pool: pool._cached.update({0: None}), "cached and in use"),
        (lambda pool: pool._free.pop(), "do not sum"),
        (lambda pool: setattr(pool, "_num_used", 5), "were counted"),
        (lambda pool: pool._hashes.__setitem__(1, b"x"), "no lookup finds"),
        (lambda pool: pool._by_hash.update({b"y": 0}), "other content"),
    ],
)
def test_check_integrity_names_the_fault(fault: object, words: str) -> None:
    pool = BlockPool(3)
    assert pool.allocate() == 0
    pool.check_integrity()
    assert callable(fault)
    fault(pool)
    with pytest.raises(IntegrityError, match=words):
        pool.check_integrity()


@given(st.lists(st.tuples(st.sampled_from(["allocate", "touch", "release", "hash"]), st.integers(0, 5)), max_size=60))
def test_any_legal_sequence_keeps_the_invariants(operations: list[tuple[str, int]]) -> None:
    pool = BlockPool(6)
    refs = [0] * 6
    for number, (operation, block) in enumerate(operations):
        if operation == "allocate" and pool.num_available:
            block = pool.allocate()
            refs[block] += 1
        elif operation == "touch" and (refs[block] or pool.hash_of(block) is not None):
            pool.touch(block)
            refs[block] += 1
        elif operation == "release" and refs[block]:
            pool.release(block)
            refs[block] -= 1
        elif operation == "hash" and refs[block] and pool.hash_of(block) is None:
            pool.set_hash(block, bytes([number % 7]))
        assert [pool.ref_count(b) for b in range(6)] == refs
        pool.check_integrity()
