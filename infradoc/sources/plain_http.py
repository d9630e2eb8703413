"""The short way to a server on this machine: plain HTTP over one kept connection, by the standard library.

httpx takes four times the CPU for the same page (1.1 ms and 0.3 ms for 110 KB), and a watch fetches one every second.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

_CHUNK_BYTES = 256 * 1024


class PlainTrouble(Exception):
    """Anything unusual. The caller asks again with httpx, which can say what it was."""


class PlainHttp:
    """Asks one server. `connect` and `wait` are the seconds to connect and for each piece of an answer."""

    def __init__(self, url: str, connect: float, wait: float) -> None:
        parts = urlsplit(url)
        self._server = (parts.scheme, parts.netloc)
        self._connect, self._wait = connect, wait
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80)

    def get(self, url: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        """The answer, its body yet to be read. Raises PlainTrouble; TimeoutError when the server is silent."""
        parts = urlsplit(url)
        if (parts.scheme, parts.netloc) != self._server or not url.isascii():
            raise PlainTrouble("another server")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        kept = self._connection.sock is not None
        try:
            return self._ask(target, headers)
        except TimeoutError:
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            if not kept or isinstance(error, ValueError):
                raise PlainTrouble(str(error)) from error
        return self.get(url, headers)  # servers close a connection that was idle for some seconds

    def _ask(self, target: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        if self._connection.sock is None:
            self._open()
        self._connection.request("GET", target, headers=dict(headers))
        response = self._connection.getresponse()
        if response.getheader("content-encoding", "identity") != "identity":
            raise PlainTrouble("it is packed")
        if response.length is None and not response.chunked:  # then even a head that broke off would look whole
            raise PlainTrouble("its length is not known")
        return response

    def _open(self) -> None:
        self._connection.timeout = self._connect
        try:
            self._connection.connect()
        except TimeoutError as error:
            raise PlainTrouble("no connection") from error
        self._connection.sock.settimeout(self._wait)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._connection.close()


def chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """The body piece by piece. Raises PlainTrouble when it is not whole, TimeoutError when the server is silent."""
    try:
        while chunk := response.read1(_CHUNK_BYTES):
            yield chunk
    except TimeoutError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise PlainTrouble(str(error)) from error
    if response.length:
        raise PlainTrouble("it ended before the length that it had announced")
    response.close()  # `read1` does not at the end of an announced length, and the connection waits for it
