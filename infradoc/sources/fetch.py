"""One bounded HTTP GET, with every way it can go wrong told in one sentence.

Redirects are not followed: a credential must not travel to an address that the user did not name.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from infradoc.config import Auth
from infradoc.errors import InfradocError
from infradoc.sources.credentials import basic_auth, request_headers

MAX_BODY_BYTES = 32 * 1024 * 1024
CONNECT_SECONDS = 3.0
READ_SECONDS = 5.0
TOTAL_SECONDS = 10.0


class FetchError(InfradocError):
    """A request that gave no page. `kind` is a word for code to branch on; the message is for people."""

    def __init__(self, kind: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Page:
    """One answer: `body` is whole; `sized` tells whether the server announced its length or ended it properly."""

    url: str
    status: int
    content_type: str
    body: bytes
    seconds: float
    sized: bool


class Fetcher:
    """A connection-keeping client for one target."""

    def __init__(self, url: str, auth: Auth, *, total_seconds: float = TOTAL_SECONDS) -> None:
        self._auth = auth
        self._total = total_seconds
        self._client = self._build(url, auth)

    @staticmethod
    def _build(url: str, auth: Auth) -> httpx.Client:
        secure = url.startswith("https:")
        return httpx.Client(
            timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
            headers={"User-Agent": "infradoc", "Accept-Encoding": "identity"},
            verify=_tls_context(auth) if secure else False,  # plain HTTP: skip loading the certificate store
            proxy=auth.proxy or None,
            trust_env=not is_loopback(url),  # a proxy variable must not catch requests to this machine
            follow_redirects=False,
        )

    def get(self, url: str, *, token: str | None = None, max_bytes: int = MAX_BODY_BYTES) -> Page:
        """GET `url`. `token` replaces the target's own credentials. Raises FetchError or SecretError."""
        headers = {"Authorization": f"Bearer {token}"} if token else request_headers(self._auth)
        options: dict[str, Any] = {"headers": headers}
        basic = None if token else basic_auth(self._auth)
        if basic is not None:
            options["auth"] = basic
        started = time.monotonic()
        try:
            with self._client.stream("GET", url, **options) as response:
                body = self._body(response, url, started, max_bytes)
        except httpx.HTTPError as error:
            raise explain(error, url) from error
        except (httpx.InvalidURL, UnicodeError, ValueError) as error:
            raise FetchError("url", f"{url} is not a usable address: {error}.", "Check the URL.") from error
        sized = "content-length" in response.headers or "chunked" in response.headers.get("transfer-encoding", "")
        kind = response.headers.get("content-type", "")
        return Page(url, response.status_code, kind, body, time.monotonic() - started, sized)

    def _body(self, response: httpx.Response, url: str, started: float, max_bytes: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        for chunk in response.iter_bytes():
            parts.append(chunk)
            size += len(chunk)
            if size > max_bytes:
                limit = max_bytes // (1024 * 1024)
                raise FetchError("huge", f"{url} sends more than {limit} MiB.", "This is not a metrics page.")
            if time.monotonic() - started > self._total:
                raise FetchError(
                    "timeout", f"{url} did not finish within {self._total:g} s.", "The server is overloaded."
                )
        return b"".join(parts)

    def close(self) -> None:
        """Close connections."""
        self._client.close()


def is_loopback(url: str) -> bool:
    """Whether the URL names this machine by a loopback address."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _tls_context(auth: Auth) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=auth.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise FetchError("tls", f"The CA file {auth.ca_file} cannot be used: {error}.", "It must hold PEM.") from error
    if auth.client_cert_file:
        try:
            context.load_cert_chain(auth.client_cert_file, auth.client_key_file or None)
        except (OSError, ssl.SSLError) as error:
            message = f"The client certificate {auth.client_cert_file} cannot be used: {error}."
            raise FetchError("tls", message, "Check client_cert_file and client_key_file.") from error
    return context


def explain(error: httpx.HTTPError, url: str) -> FetchError:
    """The sentence for a failed request, found in the chain of causes."""
    place = place_of(url)
    causes = _causes(error)
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            why = cause.verify_message or "it is not trusted"
            return FetchError("tls", f"The certificate of {place} is refused: {why}.", "Set ca_file for this target.")
        if isinstance(cause, ssl.SSLError):
            hint = "Is it plain http? Does it ask for a client certificate (client_cert_file)?"
            return FetchError("tls", f"TLS with {place} failed: {cause.reason or cause}.", hint)
        if isinstance(cause, socket.gaierror):
            return FetchError("dns", f"The host name in {url} is not known: {cause.strerror}.", "Check the spelling.")
        if isinstance(cause, ConnectionRefusedError):
            return FetchError("refused", f"{place} refuses the connection.", "Is the server running on that port?")
    if isinstance(error, httpx.ProxyError):
        return FetchError("proxy", f"The proxy to {place} failed: {error}.", "Check proxy and HTTPS_PROXY.")
    if isinstance(error, httpx.ConnectTimeout):
        return FetchError("timeout", f"{place} did not accept within {CONNECT_SECONDS:g} s.", "Is a firewall between?")
    if isinstance(error, httpx.TimeoutException):
        hint = "The server is overloaded or its event loop is blocked."
        return FetchError("timeout", f"{url} did not answer within {READ_SECONDS:g} s.", hint)
    if isinstance(error, httpx.UnsupportedProtocol):
        return FetchError("url", f"{url} is no http:// or https:// address.", "Give the server's URL.")
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError | httpx.WriteError):
        hint = "Did the server die, or does this port speak https or something else than HTTP?"
        return FetchError("cut", f"{url} broke off in the middle of its answer: {_reason(error, causes)}.", hint)
    return FetchError("connect", f"{place} cannot be reached: {_reason(error, causes)}.", "Check address and network.")


def _causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    step: BaseException | None = error
    while step is not None and len(found) < 10:
        found.append(step)
        step = step.__cause__ or step.__context__
    return found


def _reason(error: BaseException, causes: list[BaseException]) -> str:
    for cause in reversed(causes):
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
    return str(error).rstrip(".") or type(error).__name__


def place_of(url: str) -> str:
    """Host and port of a URL, as a person would name the server."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{parts.hostname}:{port}"
