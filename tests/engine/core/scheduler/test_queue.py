"""The waiting queue: both ends, and out from the middle."""

from __future__ import annotations

import pytest

from infradoc_engine.core.request import Request
from infradoc_engine.core.scheduler.queue import RequestQueue


def test_order_and_removal() -> None:
    queue = RequestQueue()
    a, b, c, d = (Request(name, [1], 1) for name in "abcd")
    for request in (b, c, d):
        queue.append(request)
    queue.push_head(a)
    assert queue.head is a and queue.snapshot() == [a, b, c, d]
    queue.remove(c)
    queue.remove(a)
    assert queue.snapshot() == [b, d] and len(queue) == 2


def test_equal_looking_requests_are_told_apart() -> None:
    queue = RequestQueue()
    first, second = Request("x", [1], 1), Request("x", [1], 1)
    queue.append(first)
    queue.append(second)
    queue.remove(second)
    assert queue.head is first
    with pytest.raises(ValueError):
        queue.remove(second)


def test_an_empty_queue_has_no_head() -> None:
    queue = RequestQueue()
    assert not queue and queue.snapshot() == []
    with pytest.raises(IndexError):
        _ = queue.head
