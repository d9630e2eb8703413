"""The engine's own pages: asked with the token that belongs to it, refused with one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infradoc.config import Auth
from infradoc.errors import InfradocError
from infradoc.fleet.engine_view import EngineView

pytestmark = pytest.mark.usefixtures("clean_environment")


@pytest.fixture
def token(clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("INFRADOC_ADMIN_TOKEN", "secret-1")
    return "secret-1"


def test_blocks_and_requests(server: Any, token: str) -> None:
    server.page("/admin/blocks", json.dumps({"runs": [["free", 3]]}).encode())
    server.page("/admin/requests", json.dumps({"requests": [{"id": "a"}, "no row"]}).encode())
    view = EngineView(server.url, Auth())
    assert view.blocks() == {"runs": [["free", 3]]} and view.requests() == [{"id": "a"}]
    assert all(headers["Authorization"] == f"Bearer {token}" for _, headers in server.requests)
    view.close()


def test_without_a_token_only_its_health_is_asked(server: Any) -> None:
    with pytest.raises(InfradocError, match="No admin token"):
        EngineView(server.url, Auth()).blocks()
    assert [path for path, _ in server.requests] == ["/health"]


def test_of_a_server_that_is_gone_that_is_told_not_the_token() -> None:
    with pytest.raises(InfradocError) as caught:
        EngineView("http://127.0.0.1:9", Auth()).blocks()
    assert "token" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [(401, b"{}", "answers 401"), (404, b"{}", "answers 404"), (200, b"<html>", "is no JSON")],
)
def test_a_refusal_is_one_sentence(server: Any, token: str, status: int, body: bytes, said: str) -> None:
    server.page("/admin/blocks", body, status=status)
    with pytest.raises(InfradocError, match=said) as caught:
        EngineView(server.url, Auth()).blocks()
    assert token not in str(caught.value)


def test_rows_of_another_shape_are_left_out(server: Any, token: str) -> None:
    answers: list[Callable[[], bytes]] = [lambda: b"[]", lambda: b'{"requests": 5}']
    for answer in answers:
        server.page("/admin/requests", answer())
        assert EngineView(server.url, Auth()).requests() == []
