"""Host blocks: one owner each, the lowest first, freed once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_engine.core.errors import IntegrityError
from infradoc_engine.core.host_pool import HostPool


def test_a_pool_without_blocks_refuses_everybody() -> None:
    pool = HostPool()
    assert pool.take("a", 1) is None and pool.usage_ratio == 0.0 and pool.release("a") == 0
    pool.check_integrity()


def test_the_lowest_free_blocks_go_first_so_that_the_pool_can_shrink() -> None:
    pool = HostPool(8)
    assert pool.take("a", 3) == [0, 1, 2] and pool.take("b", 2) == [3, 4]
    assert pool.release("a") == 3
    assert pool.take("c", 2) == [0, 1]
    assert pool.usage_ratio == 0.5 and pool.num_free == 4
    assert pool.owners_beyond(4) == ["b"]
    with pytest.raises(ValueError, match="1 swapped requests hold host blocks beyond 4, first b"):
        pool.resize(4)
    assert pool.num_blocks == 8
    pool.release("b")
    pool.resize(2)
    assert pool.num_free == 0 and pool.held("c") == [0, 1]
    pool.check_integrity()


def test_who_has_blocks_gets_no_second_lot() -> None:
    pool = HostPool(4)
    pool.take("a", 1)
    with pytest.raises(IntegrityError, match="already"):
        pool.take("a", 1)
    for size in (-1, -5):
        with pytest.raises(ValueError, match=str(size)):
            pool.resize(size)
        with pytest.raises(ValueError, match=str(size)):
            HostPool(size)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda pool: pool._free.append(0), "two places"),
        (lambda pool: pool._free.pop(), "neither free nor held|were found"),
        (lambda pool: pool._held["a"].clear(), "neither free nor held"),
        (lambda pool: setattr(pool, "_num_blocks", 5), "there are 5"),
    ],
)
def test_check_integrity_names_the_fault(fault: object, words: str) -> None:
    pool = HostPool(4)
    pool.take("a", 2)
    pool.check_integrity()
    assert callable(fault)
    fault(pool)
    with pytest.raises(IntegrityError, match=words):
        pool.check_integrity()


@given(st.lists(st.tuples(st.sampled_from(["take", "release", "resize"]), st.integers(0, 4), st.integers(0, 6))))
def test_any_sequence_keeps_the_invariants(operations: list[tuple[str, int, int]]) -> None:
    pool = HostPool(6)
    held: dict[str, list[int]] = {}
    for operation, name, count in operations:
        owner = str(name)
        if operation == "take" and owner not in held:
            blocks = pool.take(owner, count)
            assert (blocks is None) == (count > pool.num_blocks - sum(map(len, held.values())))
            if blocks is not None:
                held[owner] = blocks
        elif operation == "release":
            assert pool.release(owner) == len(held.pop(owner, []))
        elif operation == "resize" and not any(block >= count for blocks in held.values() for block in blocks):
            pool.resize(count)
        assert {owner: pool.held(owner) for owner in pool.owners()} == held
        pool.check_integrity()
