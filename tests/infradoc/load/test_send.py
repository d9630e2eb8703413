from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from infradoc.load.http import Origin, Pool
from infradoc.load.record import RequestRecord
from infradoc.load.send import Sender, prepare
from infradoc.load.spec import ClassSpec, Span, parse_class

CHAT = parse_class("chat:closed=1,kind=chat,prompt_tokens=8,max_tokens=6")
DOCS = parse_class("docs:closed=1,kind=tokenize,bytes=3000")


def measure(server: Any, spec: ClassSpec, times: int = 1, timeout: float = 5.0) -> list[RequestRecord]:
    async def go() -> list[RequestRecord]:
        pool = Pool(Origin.parse(server.url))
        sender = Sender(pool, {}, timeout)
        records = [await sender.measure(spec, prepare(spec, "tiny", 1, i), i) for i in range(times)]
        pool.close()
        return records

    return asyncio.run(go())


@pytest.mark.parametrize("behaviour", ["good", "burst", "bytewise"])
def test_a_stream_is_measured_by_its_events(tiny_server: Any, behaviour: str) -> None:
    tiny_server.behaviour = behaviour
    (record,) = measure(tiny_server, CHAT)
    assert record.ok, record.error
    assert (record.output_chunks, len(record.itl), record.finish_reason) == (6, 5, "length")
    assert (record.prompt_tokens, record.completion_tokens) == (5, 6)
    assert record.ttft is not None and record.e2e is not None
    assert record.ttft + sum(record.itl) <= record.e2e
    if behaviour == "burst":
        assert record.itl == [0.0] * 5


def test_gaps_are_those_of_the_server(tiny_server: Any) -> None:
    tiny_server.gap = 0.03
    (record,) = measure(tiny_server, CHAT)
    assert min(record.itl) > 0.015
    assert record.ttft is not None and record.ttft >= 0.03  # the role event before it is no token


def test_a_connection_is_used_again(tiny_server: Any) -> None:
    assert all(record.ok for record in measure(tiny_server, CHAT, times=5))
    assert tiny_server.connections == 1


def test_documents_take_the_count(tiny_server: Any) -> None:
    (record,) = measure(tiny_server, DOCS)
    sent = tiny_server.bodies[0]["prompt"]
    assert len(sent.encode()) == 3000
    assert record.ok and record.prompt_tokens == len(sent.split())


def test_an_answer_that_ends_with_the_connection(tiny_server: Any) -> None:
    tiny_server.behaviour = "close"
    records = measure(tiny_server, DOCS, times=2)
    assert all(record.ok for record in records)
    assert tiny_server.connections == 2


def test_without_streaming(tiny_server: Any) -> None:
    (record,) = measure(tiny_server, parse_class("c:closed=1,kind=completion,stream=false"))
    assert record.ok and record.completion_tokens == 7 and record.itl == []


@pytest.mark.parametrize(
    ("behaviour", "kind", "status"),
    [
        ("cut", "cut", 200),
        ("503", "http_5xx", 503),
        ("400", "http_4xx", 400),
        ("garbage", "protocol", 0),
        ("stall", "timeout", 0),
    ],
)
def test_errors_have_a_kind(tiny_server: Any, behaviour: str, kind: str, status: int) -> None:
    tiny_server.behaviour = behaviour
    (record,) = measure(tiny_server, CHAT, timeout=0.5)
    assert (record.error_kind, record.status, record.ok) == (kind, status, False)
    assert record.e2e is not None and record.error


def test_a_refused_connection_is_an_error_not_an_exception(tiny_server: Any) -> None:
    tiny_server.stop()
    (record,) = measure(tiny_server, CHAT)
    assert record.error_kind == "connect"


def test_a_request_is_a_function_of_seed_and_index() -> None:
    spec = ClassSpec("c", "chat", closed=1, prompt_tokens=Span(4, 40), max_tokens=Span(12, 36))
    made = [prepare(spec, "m", 1, i) for i in range(40)]
    assert made == [prepare(spec, "m", 1, i) for i in range(40)]
    assert len({p.body for p in made}) == 40
    assert made != [prepare(spec, "m", 2, i) for i in range(40)]
    lengths = {json.loads(p.body)["max_tokens"] for p in made}
    assert lengths <= set(range(12, 37)) and len(lengths) > 10
