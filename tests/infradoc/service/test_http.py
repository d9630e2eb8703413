"""The watch's page before clients that are slow, rude or many."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

from infradoc.service import http
from infradoc.service.http import Answer, Server, ServerError, as_json


def failing(query: Mapping[str, str]) -> Answer:
    raise RuntimeError("no page today")


@pytest.fixture
def page() -> Iterator[Server]:
    """A server with one page that works and one that does not."""
    made = Server(("127.0.0.1", 0), {"/health": lambda query: as_json({"well": True}), "/broken": failing})
    made.start()
    yield made
    made.stop()


def ask(server: Server, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as link:
        link.sendall(request)
        parts = []
        while part := link.recv(65536):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /health HTTP/1.0", b"200"),
        (b"GET http://[/health HTTP/1.0", b"400"),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.0", b"414"),
        (b"GET /nothing HTTP/1.0", b"404"),
        (b"GET /broken HTTP/1.0", b"500"),
    ],
)
def test_every_request_gets_an_answer(
    page: Server, request_line: bytes, status: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = ask(page, request_line + b"\r\n\r\n")
    assert answer.split(b" ")[1] == status
    if status in (b"400", b"500"):
        assert (
            "cannot be read" in answer.decode() or "no page today" in json.loads(answer.split(b"\r\n\r\n")[1])["error"]
        )
    assert capfd.readouterr().err == ""


def test_a_client_that_hangs_up_is_no_news(
    page: Server, capfd: pytest.CaptureFixture[str], wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    for request in (b"GET /heal", b"GET /health HTTP/1.0\r\n\r\n"):
        link = socket.create_connection(("127.0.0.1", page.port), timeout=10)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset instead of an end
        link.sendall(request)
        link.close()
    assert b"200" in ask(
        page, b"GET /health HTTP/1.0\r\n\r\n"
    )  # clients are accepted in turn: those two were before it
    # Of this server alone: in one process other tests' servers keep threads for clients that are still connected.
    wait_until(lambda: page.clients == 0)
    assert capfd.readouterr().err == ""


def test_many_slow_clients_hold_up_nobody(page: Server) -> None:
    slow = [socket.create_connection(("127.0.0.1", page.port), timeout=10) for _ in range(3 * http.MOST_CLIENTS)]
    try:
        for link in slow:
            link.sendall(b"G")
        assert b"200" in ask(page, b"GET /health HTTP/1.0\r\n\r\n")
        assert page.clients <= http.MOST_CLIENTS + 10  # those that were hung up on may not have ended yet
    finally:
        for link in slow:
            link.close()


def test_a_client_that_drips_is_not_served_for_ever(page: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_WHOLE_SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", page.port), timeout=20) as link:
        link.settimeout(0.1)
        ended = False
        for _ in range(100):
            try:
                link.sendall(b"G")
                ended = link.recv(100) == b""
            except TimeoutError:
                continue
            except OSError:
                ended = True
            if ended:
                break
        assert ended


def test_no_free_file_is_no_busy_loop(page: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a file for the next client the server waits a moment instead of asking again at once."""
    asked: list[float] = []

    def refuse(self: object) -> None:
        asked.append(time.monotonic())
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("http.server.ThreadingHTTPServer.get_request", refuse)
    with socket.create_connection(("127.0.0.1", page.port), timeout=10):
        time.sleep(1.0)
    assert 1 <= len(asked) <= 15


def test_a_name_that_dns_cannot_have_is_one_sentence() -> None:
    with pytest.raises(ServerError, match="Cannot listen on"):
        Server(("a" * 70 + ".example", 0), {})


def test_what_is_no_number_is_null() -> None:
    body = as_json({"a": [float("nan"), float("inf"), 1.5], "b": "\ud800"})[2]
    assert json.loads(body) == {"a": [None, None, 1.5], "b": "\ud800"}


@pytest.mark.parametrize(("given", "seconds"), [("600", 600.0), ("10m", 600.0), ("24h", 86_400.0), ("0", 0.0)])
def test_how_far_back_is_a_duration_as_everywhere(given: str, seconds: float) -> None:
    before = time.time()
    begin = http.since({"since": given}, 1.0)
    assert before - seconds <= begin <= time.time() - seconds


@pytest.mark.parametrize("given", ["nan", "-1", "1e400", "99999999999999d", "2 weeks", ""])
def test_how_far_back_is_told_when_it_is_none(given: str) -> None:
    with pytest.raises(ValueError, match=r"since is how far to look back: .* is no duration from 0s to 3650d"):
        http.since({"since": given}, 1.0)
