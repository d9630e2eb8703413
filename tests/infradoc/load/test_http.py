from __future__ import annotations

import asyncio

import pytest

from infradoc.load.http import Connection, CutError, Origin, ProtocolError, Response


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:8000", "http://h:8000"),
        ("h:8000/", "http://h:8000"),
        ("http://h/v1", "http://h:80"),
        ("https://h/base/v1/", "https://h:443/base"),
        ("http://[::1]:9/metrics", "http://[::1]:9"),
    ],
)
def test_origin(url: str, expected: str) -> None:
    assert Origin.parse(url).url == expected


def answer(raw: bytes, limit: int = 1 << 16) -> tuple[int, bytes, bool]:
    """Status, body and reusability of a raw answer that ends with the connection."""

    async def go() -> tuple[int, bytes, bool]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(raw)
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            origin = Origin.parse(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            connection = await Connection.open(origin, None)
            try:
                response: Response = await connection.send("GET", origin, "/", {}, b"")
                return response.status, await response.read(), connection.reusable
            finally:
                connection.close()

    return asyncio.run(go())


def test_lengths_chunks_and_close() -> None:
    assert answer(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc") == (200, b"abc", True)
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\nTrailer: 1\r\n\r\n"
    assert answer(chunked) == (200, b"abc", True)
    assert answer(b"HTTP/1.0 200 OK\r\n\r\nabc") == (200, b"abc", False)
    assert answer(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\nContent-Length: 0\r\n\r\n") == (204, b"", True)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ],
)
def test_a_cut_answer(raw: bytes) -> None:
    with pytest.raises(CutError):
        answer(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n",
        b"HTTP/2 x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 500,
        b"HTTP/1.1 200 OK\r\nlong: " + b"x" * 200_000,
    ],
)
def test_no_http(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        answer(raw)
