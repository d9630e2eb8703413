"""The short way to this machine's servers: one kept connection, and httpx for whatever is unusual."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from infradoc.config import Auth
from infradoc.sources import fetch
from infradoc.sources.fetch import Fetcher, FetchError
from infradoc.sources.plain_http import PlainHttp, chunks


@pytest.fixture
def no_httpx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any use of httpx fails the test."""

    def stream(*args: object, **options: object) -> None:
        raise AssertionError("httpx was asked")

    monkeypatch.setattr(fetch.httpx.Client, "stream", stream)


@pytest.fixture
def raw_server() -> Iterator[Any]:
    """A server that sends each connection the next of `answers` for its first request and then closes it."""
    answers: list[bytes] = []
    opened: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    opened.append(1)
                    connection.recv(65536)
                    connection.sendall(answers.pop(0) if answers else b"")

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", answers, opened
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def test_one_connection_for_all_pages(server: Any, no_httpx: None) -> None:
    peers: set[tuple[str, int]] = set()

    def answer(request: BaseHTTPRequestHandler) -> None:
        peers.add(request.client_address)
        request.send_response(200)
        request.send_header("Content-Length", "4")
        request.end_headers()
        request.wfile.write(b"a 1\n")

    server.routes.update({"/metrics": answer, "/other": answer})
    fetcher = Fetcher(server.url, Auth())
    pages = [fetcher.get(f"{server.url}{path}") for path in ("/metrics", "/other", "/metrics", "/missing")]
    fetcher.close()
    assert [page.body for page in pages[:3]] == [b"a 1\n"] * 3 and [page.status for page in pages] == [200] * 3 + [404]
    assert len(peers) == 1 and all(page.sized for page in pages[:3])


def test_chunks_without_a_length(server: Any, no_httpx: None) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        request.wfile.write(b"4\r\na 1\n\r\n4\r\nb 2\n\r\n0\r\n\r\n")

    server.routes["/metrics"] = answer
    fetcher = Fetcher(server.url, Auth())
    for _ in range(2):
        page = fetcher.get(f"{server.url}/metrics")
        assert page.body == b"a 1\nb 2\n" and page.sized
    fetcher.close()


def test_the_secret_and_the_query_travel(server: Any, no_httpx: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "tok")
    server.page("/metrics", b"a 1\n")
    fetcher = Fetcher(server.url, Auth(api_key_env="KEY"))
    fetcher.get(f"{server.url}/metrics?x=1")
    fetcher.get(f"{server.url}/metrics", token="other")
    fetcher.close()
    assert [(path, headers["Authorization"]) for path, headers in server.requests] == [
        ("/metrics?x=1", "Bearer tok"),
        ("/metrics", "Bearer other"),
    ]


def test_a_connection_that_the_server_closed_meanwhile_is_opened_again(raw_server: Any, no_httpx: None) -> None:
    url, answers, opened = raw_server
    answers += [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na 1\n"] * 3
    fetcher = Fetcher(url, Auth())
    for _ in range(3):
        assert fetcher.get(f"{url}/metrics").body == b"a 1\n"
        time.sleep(0.05)
    fetcher.close()
    assert len(opened) == 3


def test_packed_answers_are_unpacked(server: Any) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        data = gzip.compress(b"a 1\n")
        request.send_response(200)
        request.send_header("Content-Encoding", "gzip")
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    server.routes["/metrics"] = answer
    fetcher = Fetcher(server.url, Auth())
    assert fetcher.get(f"{server.url}/metrics").body == b"a 1\n"
    fetcher.close()


@pytest.mark.parametrize(
    "broken",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\na 1\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na 1\n",
        b"HTTP/1.1 200",
        b"\x15\x03\x01\x00\x02\x02\x16",
        b"",
    ],
)
def test_broken_answers_are_told_in_one_sentence(raw_server: Any, broken: bytes) -> None:
    url, answers, _ = raw_server
    answers += [broken] * 3
    fetcher = Fetcher(url, Auth())
    with pytest.raises(FetchError, match=r"broke off in the middle|speaks https, not plain http"):
        fetcher.get(f"{url}/metrics")
    answers[:] = [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na 1\n"]
    assert fetcher.get(f"{url}/metrics").body == b"a 1\n"  # and what was left over of it is no part of the next one
    fetcher.close()


def test_a_silent_server_is_waited_for_once(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "READ_SECONDS", 0.2)
    server.routes["/metrics"] = lambda request: time.sleep(0.5)
    fetcher = Fetcher(server.url, Auth())
    with pytest.raises(FetchError, match=r"did not answer within 0\.2 s"):
        fetcher.get(f"{server.url}/metrics")
    fetcher.close()
    assert len(server.requests) == 1


def test_a_page_that_is_too_large_ends_the_connection(server: Any, no_httpx: None) -> None:
    server.page("/metrics", b"a 1\n" * 1000)
    server.page("/small", b"b 2\n")
    fetcher = Fetcher(server.url, Auth())
    with pytest.raises(FetchError) as caught:
        fetcher.get(f"{server.url}/metrics", max_bytes=100)
    assert caught.value.kind == "huge"
    assert fetcher.get(f"{server.url}/small").body == b"b 2\n"
    fetcher.close()


@pytest.mark.parametrize(
    ("url", "auth"),
    [
        ("https://127.0.0.1:1", Auth()),
        ("http://192.0.2.1:1", Auth()),
        ("http://127.0.0.1:1", Auth(proxy="http://127.0.0.1:2")),
        ("http://127.0.0.1:1", Auth(basic_user="me", basic_password_env="X")),
    ],
)
def test_only_plain_requests_to_this_machine_go_the_short_way(url: str, auth: Auth) -> None:
    fetcher = Fetcher(url, auth)
    assert fetcher._plain is None
    fetcher.close()


def test_the_body_is_read_piece_by_piece(server: Any) -> None:
    server.page("/metrics", b"x" * 3_000_000)
    plain = PlainHttp(server.url, 3.0, 5.0)
    parts = list(chunks(plain.get(f"{server.url}/metrics", {})))
    plain.close()
    assert sum(map(len, parts)) == 3_000_000 and len(parts) > 1
