"""https:// asked of a port that speaks plain http, and the other way round: told apart by one look at the port."""

from __future__ import annotations

import socket
import ssl
import time
from urllib.parse import urlsplit

PATIENCE_SECONDS = 1.0
_KEEP_SECONDS = 60.0  # a watch that fails at each look must not ask the port twice as often
_PORTS = {"http": 80, "https": 443}
# What servers that speak TLS answer to plain http, where they answer at all: nginx, Go, Apache.
_REFUSALS = (
    b"plain HTTP request was sent to HTTPS port",
    b"HTTP request to an HTTPS server",
    b"speaking plain HTTP to an SSL",
)
_seen: dict[tuple[str, int, str], tuple[float, bool]] = {}


def wrong_scheme(url: str) -> tuple[str, str] | None:
    """What is wrong and which URL to use, as two sentences, where the port of `url` speaks the other scheme.

    None where it does not, or cannot be told. Opens one connection of its own, without any credential.
    """
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        return None
    try:
        port = parts.port or _PORTS[parts.scheme]
    except ValueError:
        return None
    return told(url) if _speaks_other(parts.hostname, port, parts.scheme) else None


def told(url: str) -> tuple[str, str]:
    """The sentences for a port that is known to speak the other scheme."""
    parts = urlsplit(url)
    other = "http" if parts.scheme == "https" else "https"
    speaks = "plain http, not https" if other == "http" else "https, not plain http"
    return f"{parts.netloc.rpartition('@')[2]} speaks {speaks}.", f"Use {other}{url[len(parts.scheme) :]}."


def is_refusal(status: int, body: bytes) -> bool:
    """Whether a page is what a server that speaks TLS says to plain http."""
    return status == 400 and any(words in body[:2000] for words in _REFUSALS)


def _speaks_other(host: str, port: int, scheme: str) -> bool:
    key, now = (host, port, scheme), time.monotonic()
    known = _seen.get(key)
    if known is None or now - known[0] > _KEEP_SECONDS:
        known = _seen[key] = (now, (_speaks_http if scheme == "https" else _speaks_tls)(host, port))
    return known[1]


def _speaks_http(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), PATIENCE_SECONDS) as plain:
            plain.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
            return plain.recv(8).startswith(b"HTTP/")
    except (OSError, UnicodeError):
        return False


def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # who it is does not matter, only how it speaks
    try:
        with socket.create_connection((host, port), PATIENCE_SECONDS) as plain:
            context.wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # it refuses us, but in TLS
    except (OSError, UnicodeError, ValueError):
        return False
    return True
