"""What a client sees of a failure: whose fault it is, and when to come again."""

from __future__ import annotations

import pytest

from infradoc_engine.jobs import EngineFailure, ErrorKind
from infradoc_engine.server.errors import from_failure


@pytest.mark.parametrize(
    ("kind", "status", "retry"),
    [("length", 400, None), ("memory", 503, "1"), ("shutdown", 503, "1"), ("internal", 500, None)],
)
def test_only_what_passes_asks_to_come_again(kind: ErrorKind, status: int, retry: str | None) -> None:
    answer = from_failure(EngineFailure(kind, "why")).response()
    assert (answer.status_code, answer.headers.get("retry-after")) == (status, retry)
