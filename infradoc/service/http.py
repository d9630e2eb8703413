"""The watch's own page: /metrics, /health, /findings and /history. Reads only; loopback unless asked otherwise."""

from __future__ import annotations

import errno
import json
import math
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from infradoc.durations import seconds_of
from infradoc.errors import InfradocError

_REQUEST_SECONDS = 10.0  # of silence
_WHOLE_SECONDS = 20.0  # of a request with its answer: a client that drips one byte a second is not waited for
MOST_CLIENTS = 64  # at once; then the one that has been at it longest goes, as scrapes take milliseconds
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Answer = tuple[int, str, bytes]
Route = Callable[[Mapping[str, str]], Answer]


class ServerError(InfradocError):
    """The address cannot be listened on."""


def as_json(value: Any, status: int = 200) -> Answer:
    """A JSON answer."""
    text = json.dumps(_known(value), ensure_ascii=False, default=str, allow_nan=False)
    return status, "application/json", text.encode(errors="backslashreplace") + b"\n"


def _known(value: Any) -> Any:
    """`value` with null for what is no number: JSON has no NaN, and readers refuse a page that does."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _known(part) for key, part in value.items()}
    return [_known(part) for part in value] if isinstance(value, list | tuple) else value


def as_metrics(page: bytes) -> Answer:
    """A metrics page."""
    return 200, _METRICS_TYPE, page


class Server:
    """Serves routes from a thread of its own. `port` is the real one when 0 was asked for."""

    def __init__(self, address: tuple[str, int], routes: Mapping[str, Route]) -> None:
        """Listen. Raises ServerError."""
        host, port = address
        kind = _kind(routes, socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            self._server = kind(address, _Handler)
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that cannot be one of DNS
            hint = "Set [watch] listen (or --listen) to another HOST:PORT, or to off."
            reason = error.strerror if isinstance(error, OSError) else "it is no host name"
            raise ServerError(f"Cannot listen on {host}:{port}: {reason}.", hint) from error
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="watch-http", daemon=True)

    @property
    def clients(self) -> int:
        """How many connections are open."""
        return self._server.num_clients

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(2.0)


class _Routed(ThreadingHTTPServer):
    """Many clients at once, none of them for long: threads and open files stay bounded whatever they do."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    routes: Mapping[str, Route]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._clients: dict[socket.socket, float] = {}  # since when, oldest first
        self._guard = threading.Lock()
        super().__init__(*args, **kwargs)

    @property
    def num_clients(self) -> int:
        """Connections that were accepted and are not closed yet."""
        with self._guard:
            return len(self._clients)

    def server_bind(self) -> None:
        """As the base class, without asking DNS for this machine's name: that may take half a minute."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            client, address = super().get_request()
        except OSError as error:
            if error.errno in _NO_ROOM:  # the caller would be back at once, and turn a core into heat
                self._drop(1)
                time.sleep(0.1)
            raise
        with self._guard:
            self._clients[client] = time.monotonic()
            over = len(self._clients) - MOST_CLIENTS
        self._drop(over)
        return client, address

    def service_actions(self) -> None:
        """Twice a second: nobody is served for longer than the limit."""
        late = time.monotonic() - _WHOLE_SECONDS
        with self._guard:
            count = sum(since < late for since in self._clients.values())
        self._drop(count)

    def _drop(self, count: int) -> None:
        """Hang up on the oldest clients; their threads see the end of the connection and close it."""
        with self._guard:
            for client in list(self._clients)[: max(0, count)]:
                try:
                    client.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # it has hung up itself

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._clients.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news; anything else is one line."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            print(f"infradoc watch: a request failed: {type(error).__name__}: {error}", file=sys.stderr)


def _kind(given: Mapping[str, Route], family: socket.AddressFamily) -> type[_Routed]:
    class Bound(_Routed):
        address_family = family
        routes = given

    return Bound


class _Handler(BaseHTTPRequestHandler):
    server: _Routed
    server_version = "infradoc"
    sys_version = ""
    timeout = _REQUEST_SECONDS  # a client that says nothing does not hold a thread for ever

    def do_GET(self) -> None:
        try:
            answer = self._answer()
        except InfradocError as error:
            answer = as_json({"error": str(error)}, 503)
        except ValueError as error:
            answer = as_json({"error": f"The query cannot be read: {error}."}, 400)
        except Exception as error:  # one page that cannot be made must not look like a dead watch
            answer = as_json({"error": f"Internal error: {type(error).__name__}: {error}."}, 500)
        self._send(answer)

    def _answer(self) -> Answer:
        """Raises InfradocError, and ValueError for an address or a query that cannot be read."""
        parts = urlsplit(self.path)
        route = self.server.routes.get(parts.path)
        if route is None:
            known = ", ".join(self.server.routes)
            return as_json({"error": f"There is no {parts.path[:100]} here; there are {known}."}, 404)
        return route({key: values[-1] for key, values in parse_qs(parts.query).items()})

    do_HEAD = do_GET

    def _send(self, answer: Answer) -> None:
        status, content_type, body = answer
        try:
            self.send_response(HTTPStatus(status))
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
        except OSError:
            self.close_connection = True  # the client has gone; there is nobody to tell

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes every few seconds are no news."""


def since(query: Mapping[str, str], default_seconds: float) -> float:
    """`?since=600` or `?since=24h` back from now, as Unix seconds. Raises ValueError."""
    try:
        return time.time() - (seconds_of(query["since"]) if "since" in query else default_seconds)
    except ValueError as error:
        raise ValueError(f"since is how far to look back: {error}") from error
