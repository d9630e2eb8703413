"""The application alone: what is counted when an answer breaks off, and what a client is told of a fault."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message, Send

from infradoc_engine.metrics import EngineMetrics
from infradoc_engine.server.app import Application


async def breaks_off(request: Request, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    raise RuntimeError("in the middle of a stream")


async def fails(request: Request, send: Send) -> None:
    raise RuntimeError("secret detail")


def ask(path: str) -> tuple[list[Message], EngineMetrics, list[str], Exception | None]:
    sent: list[Message] = []
    log: list[str] = []
    metrics = EngineMetrics()
    application = Application({"/stream": {"GET": breaks_off}, "/x": {"GET": fails}}, metrics, log.append, debug=False)
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    try:
        asyncio.run(application(scope, receive, send))
    except Exception as error:
        return sent, metrics, log, error
    return sent, metrics, log, None


def test_a_stream_that_breaks_off_is_counted_and_closes_the_connection() -> None:
    sent, metrics, log, error = ask("/stream")
    assert error is not None and [message["type"] for message in sent] == ["http.response.start"]
    assert metrics.http_requests.value("/stream", "200") == 1
    assert metrics.http_seconds.total("/stream")[0] == 1
    assert "in the middle of a stream" in log[0]


@pytest.mark.parametrize(("path", "status"), [("/x", 500), ("/nowhere", 404)])
def test_a_fault_is_one_sentence_without_its_detail(path: str, status: int) -> None:
    sent, metrics, _, error = ask(path)
    assert error is None and sent[0]["status"] == status
    message = json.loads(sent[1]["body"])["error"]["message"]
    assert message and "secret detail" not in message and "\n" not in message
    assert metrics.http_requests.value("/x" if path == "/x" else "other", str(status)) == 1
