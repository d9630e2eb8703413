"""A lean HTTP/1.1 client over asyncio streams.

The load generator shares its cores with the server that it measures, so its own work must be small: httpx 0.28 spends
35 microseconds of CPU on a streamed event, this client 14 (4 streams of 31 events). Only what a load generator needs:
POST and GET with a body in memory, keep-alive, Content-Length, chunked or read-to-close answers.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from infradoc.errors import InfradocError

LINE_LIMIT = 1 << 16
READ_SIZE = 1 << 16
HEADER_COUNT_LIMIT = 200


class ProtocolError(Exception):
    """The server's bytes are no HTTP/1.1 answer; the text is one sentence."""


class CutError(Exception):
    """The connection closed before the answer was complete."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where requests go: scheme, host, port and the path under which `/v1` lies."""

    scheme: str
    host: str
    port: int
    base: str

    @classmethod
    def parse(cls, url: str) -> Origin:
        """Read http(s)://host[:port][/base]; a trailing /v1 or /metrics is dropped. Raises InfradocError."""
        text = url if "://" in url else f"http://{url}"
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InfradocError(f"{url!r} is no URL of a server.", "Write http://host:port.")
        if parts.username is not None or parts.password is not None:
            raise InfradocError(  # it would be shown in the output, and it would not be sent
                "The URL holds a user name or password.", "Leave it out; bench takes a key with --api-key-env."
            )
        base = parts.path.rstrip("/")
        if not (base.isascii() and url.isprintable()) or " " in url.strip() or not _is_host_name(parts.hostname):
            raise InfradocError(f"{url!r} is no URL of a server.", "Write http://host:port.")
        for suffix in ("/v1", "/metrics"):
            base = base.removesuffix(suffix)
        return cls(parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), base)

    @property
    def host_header(self) -> str:
        """Value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The origin as a URL."""
        return f"{self.scheme}://{self.host_header}{self.base}"


def is_plain_http(error: ssl.SSLError) -> bool:
    """Whether a TLS handshake failed because the other side answered in plain text."""
    return error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")


def _is_host_name(host: str) -> bool:
    """Whether `host` can be looked up at all: no label is empty or too long."""
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False


class Connection:
    """One keep-alive connection; one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._old = False  # HTTP/1.0 closes unless it says otherwise
        self.reusable = True

    @classmethod
    async def open(cls, origin: Origin, tls: ssl.SSLContext | None) -> Connection:
        """Connect. Raises OSError (ssl.SSLError is one)."""
        reader, writer = await asyncio.open_connection(origin.host, origin.port, ssl=tls, limit=LINE_LIMIT)
        return cls(reader, writer)

    def close(self) -> None:
        """Close at once, without waiting for the peer."""
        self.reusable = False
        self._writer.close()

    async def send(self, method: str, origin: Origin, path: str, headers: Mapping[str, str], body: bytes) -> Response:
        """Send one request and read the head of its answer. Raises CutError, ProtocolError, OSError."""
        lines = [f"{method} {origin.base}{path} HTTP/1.1", f"Host: {origin.host_header}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines.append(f"Content-Length: {len(body)}")
        head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        self._writer.write(head + body)
        await self._writer.drain()
        status, answer_headers = await self._read_head()
        wish = answer_headers.get("connection", "").lower()
        self.reusable = "close" not in wish and (not self._old or "keep-alive" in wish)
        return Response(status, answer_headers, self._reader, self)

    async def _read_head(self) -> tuple[int, dict[str, str]]:
        status = 100
        while status < 200:  # 100 Continue and its kind come before the answer
            line = await self._line()
            parts = line.split(b" ", 2)
            if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
                raise ProtocolError("The server does not speak HTTP/1.1.")
            self._old = parts[0] == b"HTTP/1.0"
            status = int(parts[1])
            headers = await self._headers()
        return status, headers

    async def _headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        for _ in range(HEADER_COUNT_LIMIT):
            line = await self._line()
            if not line:
                return headers
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        raise ProtocolError(f"The server's answer has more than {HEADER_COUNT_LIMIT} headers.")

    async def _line(self) -> bytes:
        return await read_line(self._reader)


async def read_line(reader: asyncio.StreamReader) -> bytes:
    """One line without its end. Raises CutError, ProtocolError."""
    try:
        return (await reader.readuntil(b"\n")).rstrip(b"\r\n")
    except asyncio.IncompleteReadError as error:
        raise CutError("The server closed the connection before its answer was complete.") from error
    except asyncio.LimitOverrunError as error:
        raise ProtocolError(f"The server's answer has a line over {LINE_LIMIT} bytes.") from error


class Response:
    """Status and headers, with the body still to be read."""

    def __init__(self, status: int, headers: dict[str, str], reader: asyncio.StreamReader, owner: Connection) -> None:
        self.status = status
        self.headers = headers
        self._reader = reader
        self._owner = owner

    async def read(self) -> bytes:
        """The whole body."""
        return b"".join([part async for part in self.parts()])

    async def parts(self) -> AsyncIterator[bytes]:
        """The body as it arrives. Raises CutError, ProtocolError."""
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            async for part in self._chunks():
                yield part
        elif "content-length" in self.headers:
            async for part in self._exactly(self._length()):
                yield part
        else:
            self._owner.reusable = False
            while part := await self._reader.read(READ_SIZE):
                yield part

    def _length(self) -> int:
        text = self.headers["content-length"]
        if not text.isdigit():
            raise ProtocolError("The server's answer has no valid Content-Length.")
        return int(text)

    async def _exactly(self, count: int) -> AsyncIterator[bytes]:
        while count:
            part = await self._reader.read(min(count, READ_SIZE))
            if not part:
                raise CutError("The server closed the connection before its answer was complete.")
            count -= len(part)
            yield part

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            line = await read_line(self._reader)
            try:
                size = int(line.split(b";")[0], 16)
            except ValueError:
                raise ProtocolError("The server's answer is not in valid chunks.") from None
            if size == 0:
                break
            async for part in self._exactly(size):
                yield part
            await read_line(self._reader)
        while await read_line(self._reader):  # trailers
            pass


class Pool:
    """Connections to one origin: idle ones are used again, last in first out."""

    def __init__(self, origin: Origin, tls: ssl.SSLContext | None = None) -> None:
        self.origin = origin
        self._tls = tls
        self._idle: list[Connection] = []

    async def take(self) -> tuple[Connection, bool]:
        """A connection, and whether it was used before (the server may have closed such a one)."""
        if self._idle:
            return self._idle.pop(), True
        return await Connection.open(self.origin, self._tls), False

    def give(self, connection: Connection) -> None:
        """Put a connection back, or close it when it cannot be used again."""
        if connection.reusable:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.pop().close()
