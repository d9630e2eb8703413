"""Readings that do not wait for whoever holds the lock."""

from __future__ import annotations

import threading

import pytest

from infradoc_engine.snapshot import Snapshot


def test_what_is_read_is_new_while_the_lock_is_free_and_the_last_one_while_it_is_not() -> None:
    lock, values = threading.Lock(), iter(range(10))
    read = Snapshot(lock, lambda: next(values), patience=0.01)
    assert [read(), read()] == [1, 2]
    with lock:
        assert [read(), read()] == [2, 2]
    assert read() == 3


def test_a_reading_that_fails_lets_the_lock_go() -> None:
    lock, values = threading.Lock(), iter([1])
    read = Snapshot(lock, lambda: next(values), patience=0.01)
    with pytest.raises(StopIteration):
        read()
    assert not lock.locked()
