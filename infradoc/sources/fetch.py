"""One bounded HTTP GET, with every way it can go wrong told in one sentence.

Redirects are not followed: a credential must not travel to an address that the user did not name.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from infradoc.config import Auth
from infradoc.errors import InfradocError
from infradoc.scheme import is_refusal, told, wrong_scheme
from infradoc.small_file import open_regular
from infradoc.sources.credentials import basic_auth, request_headers
from infradoc.sources.plain_http import PlainHttp, PlainTrouble, chunks

MAX_BODY_BYTES = 32 * 1024 * 1024
CONNECT_SECONDS = 3.0
READ_SECONDS = 5.0
TOTAL_SECONDS = 10.0
_PROXY_VARIABLES = ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_HEADERS = {"User-Agent": "infradoc", "Accept": "*/*", "Accept-Encoding": "identity"}


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
        short = urlsplit(url).scheme == "http" and is_loopback(url) and not auth.proxy and not auth.basic_user
        self._plain = PlainHttp(url, CONNECT_SECONDS, READ_SECONDS) if short else None

    @staticmethod
    def _build(url: str, auth: Auth) -> httpx.Client:
        limits = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
        return make_client(url, auth, timeout=limits, headers=_HEADERS, follow_redirects=False)

    def get(self, url: str, *, token: str | None = None, max_bytes: int = MAX_BODY_BYTES) -> Page:
        """GET `url`. `token` replaces the target's own credentials. Raises FetchError or SecretError."""
        headers = {"Authorization": f"Bearer {token}"} if token else request_headers(self._auth)
        if self._plain is not None:
            try:
                return self._get_plain(self._plain, url, headers, max_bytes)
            except PlainTrouble:
                pass  # httpx says what it is
        options: dict[str, Any] = {"headers": headers}
        basic = None if token else basic_auth(self._auth)
        if basic is not None:
            options["auth"] = basic
        started = time.monotonic()
        try:
            with self._client.stream("GET", url, **options) as response:
                body = self._body(response.iter_bytes(), url, started, max_bytes)
        except httpx.HTTPError as error:
            raise explain(error, url) from error
        except (httpx.InvalidURL, UnicodeError, ValueError) as error:
            raise FetchError("url", f"{url} is not a usable address: {error}.", "Check the URL.") from error
        if url.startswith("http:") and is_refusal(response.status_code, body):
            raise FetchError("tls", *told(url))
        return _page(url, response.status_code, response.headers, body, started)

    def _get_plain(self, plain: PlainHttp, url: str, headers: dict[str, str], max_bytes: int) -> Page:
        started = time.monotonic()
        try:
            response = plain.get(url, _HEADERS | headers)
            body = self._body(chunks(response), url, started, max_bytes)
        except TimeoutError as error:
            plain.close()
            raise _silent(url) from error
        except (PlainTrouble, FetchError):
            plain.close()  # what is left of the answer must not be taken for the next one
            raise
        if is_refusal(response.status, body):
            raise FetchError("tls", *told(url))
        return _page(url, response.status, response.headers, body, started)

    def _body(self, parts: Iterable[bytes], url: str, started: float, max_bytes: int) -> bytes:
        taken: list[bytes] = []
        size = 0
        for part in parts:
            taken.append(part)
            size += len(part)
            if size > max_bytes:
                limit = max_bytes // (1024 * 1024)
                raise FetchError("huge", f"{url} sends more than {limit} MiB.", "This is not a metrics page.")
            if time.monotonic() - started > self._total:
                raise FetchError(
                    "timeout", f"{url} did not finish within {self._total:g} s.", "The server is overloaded."
                )
        return b"".join(taken)

    def close(self) -> None:
        """Close connections."""
        self._client.close()
        if self._plain is not None:
            self._plain.close()


def _page(url: str, status: int, headers: Any, body: bytes, started: float) -> Page:
    """`headers` is httpx's or the standard library's: both take names in any case."""
    sized = "content-length" in headers or "chunked" in headers.get("transfer-encoding", "")
    return Page(url, status, headers.get("content-type", ""), body, time.monotonic() - started, sized)


def _silent(url: str) -> FetchError:
    hint = "The server is overloaded or its event loop is blocked."
    return FetchError("timeout", f"{url} did not answer within {READ_SECONDS:g} s.", hint)


def make_client(url: str, auth: Auth, **options: Any) -> httpx.Client:
    """A client that reaches a target through its certificate authority, client certificate and proxy.

    Raises FetchError, also for proxy variables of the environment that cannot be used.
    """
    verify = _tls_context(auth) if url.startswith("https:") else False  # plain HTTP: skip loading the store
    from_env = not is_loopback(url)  # a proxy variable must not catch requests to this machine
    try:
        return httpx.Client(verify=verify, proxy=auth.proxy or None, trust_env=from_env, **options)
    except (ImportError, httpx.InvalidURL, ValueError) as error:  # SOCKS would need another package
        why = "SOCKS is not supported" if isinstance(error, ImportError) else str(error).rstrip(".")
        names = [name for name in _PROXY_VARIABLES if os.environ.get(name) or os.environ.get(name.lower())]
        where = ", ".join(["proxy of the target"] if auth.proxy else names) or "the URL"
        hint = "Give an http:// or https:// proxy, or unset the variable for this command."
        raise FetchError("url", f"{url} cannot be reached as the proxy settings say ({where}): {why}.", hint) from error


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
        _check_regular(auth.ca_file)
        context = ssl.create_default_context(cafile=auth.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise FetchError(
            "tls", f"The CA file {auth.ca_file} cannot be used: {_why(error)}.", "It must hold PEM."
        ) from error
    if auth.client_cert_file:
        try:
            _check_regular(auth.client_cert_file)
            _check_regular(auth.client_key_file)
            context.load_cert_chain(auth.client_cert_file, auth.client_key_file or None)
        except (OSError, ssl.SSLError) as error:
            message = f"The client certificate {auth.client_cert_file} cannot be used: {_why(error)}."
            raise FetchError("tls", message, "Check client_cert_file and client_key_file.") from error
    return context


def _why(error: OSError) -> str:
    return error.strerror or str(error)


def _check_regular(file: str | None) -> None:
    """Raises OSError for a pipe: OpenSSL would wait for its writer for ever."""
    if file:
        open_regular(Path(file)).close()


def explain(error: httpx.HTTPError, url: str) -> FetchError:
    """The sentence for a failed request, found in the chain of causes."""
    place = place_of(url)
    causes = _causes(error)
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            why = cause.verify_message or "it is not trusted"
            return FetchError("tls", f"The certificate of {place} is refused: {why}.", "Set ca_file for this target.")
        if isinstance(cause, ssl.SSLError):
            if (other := wrong_scheme(url)) is not None:
                return FetchError("tls", *other)
            hint = "Does it ask for a client certificate (client_cert_file)?"
            return FetchError("tls", f"TLS with {place} failed: {cause.reason or cause}.", hint)
        if isinstance(cause, socket.gaierror):
            return FetchError("dns", f"The host name in {url} is not known: {cause.strerror}.", "Check the spelling.")
        if isinstance(cause, ConnectionRefusedError):
            return FetchError("refused", f"{place} refuses the connection.", "Is the server running on that port?")
    if isinstance(error, httpx.ProxyError):
        return FetchError("proxy", f"The proxy to {place} failed: {error}.", "Check proxy and HTTPS_PROXY.")
    # A server of plain http may wait for the end of a line that the handshake does not have.
    silent = url.startswith("https:") and isinstance(error, httpx.ConnectTimeout)
    cut = isinstance(error, httpx.RemoteProtocolError | httpx.ReadError | httpx.WriteError)
    if (silent or cut) and (other := wrong_scheme(url)) is not None:
        return FetchError("tls", *other)
    if isinstance(error, httpx.ConnectTimeout):
        return FetchError("timeout", f"{place} did not accept within {CONNECT_SECONDS:g} s.", "Is a firewall between?")
    if isinstance(error, httpx.TimeoutException):
        return _silent(url)
    if isinstance(error, httpx.UnsupportedProtocol):
        return FetchError("url", f"{url} is no http:// or https:// address.", "Give the server's URL.")
    if cut:
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
