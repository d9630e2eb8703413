"""One is not many."""

from __future__ import annotations

import pytest

from infradoc.plurals import agreeing, counted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 requests refused for their length", "1 request refused for their length"),
        ("1 statistics lines show a queue", "1 statistics line shows a queue"),
        ("1 requests wait, 1 requests run", "1 request waits, 1 request runs"),
        ("the server waits for CPU (1 cores)", "the server waits for CPU (1 core)"),
        ("1 bodies were cut", "1 body was cut"),
        ("1 or more requests waited", "1 or more requests waited"),
        ("0 or more requests waited throughout", "at times no request waited"),
        ("not met: 0 or more requests waited throughout; 3 or more", "at times no request waited; 3 or more"),
        ("未满足：始终有至少 0 个请求在等待", "有时没有请求在等待"),
        ("although 0 or more requests run throughout.", "although at times no request runs."),
        ("10 or more requests waited throughout", "10 or more requests waited throughout"),
        ("始终有至少 0 个请求在等待", "有时没有请求在等待"),
        ("尽管始终至少有 0 个请求在运行", "尽管有时没有请求在运行"),
        ("始终有至少 10 个请求在等待", "始终有至少 10 个请求在等待"),
        ("11 requests wait", "11 requests wait"),
        ("2.1 requests, 3,1 requests, -1 requests", "2.1 requests, 3,1 requests, -1 requests"),
        ("1.0 requests", "1 request"),
        ("12.0 requests were in hand", "12 requests were in hand"),
        ("2.0 cores, 3.0 seconds", "2.0 cores, 3.0 seconds"),
        ("0 requests", "0 requests"),
        ("1 requests/s", "1 requests/s"),
        ("最近有 1 个请求", "最近有 1 个请求"),
    ],
)
def test_what_is_said_of_one(text: str, said: str) -> None:
    assert agreeing(text) == said


def test_counted() -> None:
    assert counted(1, "row") == "1 row" and counted(0, "row") == "0 rows" and counted(2000, "row") == "2,000 rows"
    assert counted(2, "entry", "entries") == "2 entries"
