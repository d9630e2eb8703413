"""How long `fix` watches: a finding that comes and goes is no reason to say that there is nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infradoc.config import Config
from infradoc.remediation.session import AFTER_FIRST_FINDING, Session


@pytest.fixture
def session(state_dir: Path, closed_port: int) -> Iterator[Session]:
    """Of a server that is not there: the tests say what each look shows."""
    with Session(f"http://127.0.0.1:{closed_port}", Config()) as made:
        yield made


@pytest.mark.parametrize(
    ("shown", "looks"),
    [
        ([True] * 20, AFTER_FIRST_FINDING + 1),
        ([False, True, True, True, True, False, False, True, True], 8),  # gone at the last of the further looks
        ([True, False, False, False, False, False, True], 7),
    ],
)
def test_the_watch_ends_at_a_look_that_shows_the_finding(
    shown: list[bool],
    looks: int,
    session: Session,
    make_finding: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = list(shown)

    def look() -> Any:
        findings = (make_finding("kv-thrashing-preemption"),) if left.pop(0) else ()
        return SimpleNamespace(findings=findings, results=SimpleNamespace(unknown=()))

    monkeypatch.setattr(Session, "look", lambda self: look())
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    watched = session.watch(60.0)
    assert [finding.id for finding in watched.findings] == ["kv-thrashing-preemption"]
    assert len(shown) - len(left) == looks
