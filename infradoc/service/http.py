"""The watch's own page: /metrics, /health, /findings and /history. Reads only; loopback unless asked otherwise."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from infradoc.errors import InfradocError

_REQUEST_SECONDS = 10.0
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Answer = tuple[int, str, bytes]
Route = Callable[[Mapping[str, str]], Answer]


class ServerError(InfradocError):
    """The address cannot be listened on."""


def as_json(value: Any, status: int = 200) -> Answer:
    """A JSON answer."""
    return status, "application/json", json.dumps(value, ensure_ascii=False, default=str).encode() + b"\n"


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
        except OSError as error:
            hint = "Set [watch] listen (or --listen) to another HOST:PORT, or to off."
            raise ServerError(f"Cannot listen on {host}:{port}: {error.strerror}.", hint) from error
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="watch-http", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(2.0)


class _Routed(ThreadingHTTPServer):
    daemon_threads = True
    routes: Mapping[str, Route]


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
        parts = urlsplit(self.path)
        route = self.server.routes.get(parts.path)
        if route is None:
            known = ", ".join(self.server.routes)
            self._send(as_json({"error": f"There is no {parts.path[:100]} here; there are {known}."}, 404))
            return
        try:
            answer = route({key: values[-1] for key, values in parse_qs(parts.query).items()})
        except InfradocError as error:
            answer = as_json({"error": str(error)}, 503)
        except ValueError as error:
            answer = as_json({"error": f"The query cannot be read: {error}."}, 400)
        self._send(answer)

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
    """`?since=SECONDS` back from now, as Unix seconds. Raises ValueError."""
    seconds = float(query.get("since", default_seconds))
    if not 0 <= seconds <= 3650 * 86400:
        raise ValueError("since is the number of seconds to look back")
    return time.time() - seconds
