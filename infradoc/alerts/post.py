"""One bounded HTTP request to a sink: no redirects, judged addresses, a total time limit, 64 KB of the answer.

httpx's transport is used without its client: the client logs whole addresses, and those of chat services hold the key.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from infradoc.alerts.address import refusal
from infradoc.alerts.apart import in_thread
from infradoc.alerts.clean import masked
from infradoc.alerts.config import SinkConfig
from infradoc.alerts.sinks.base import Answer, Request
from infradoc.errors import InfradocError
from infradoc.small_file import open_regular

MOST_BYTES = 64 * 1024
CONNECT_SECONDS = 3.0
MOST_ADDRESSES = 3


class SendError(InfradocError):
    """An attempt without an answer. `trips`: the receiver's or the network's fault. `final`: not to be tried again."""

    def __init__(self, message: str, hint: str = "", *, trips: bool = True, final: bool = False) -> None:
        super().__init__(message, hint)
        self.trips = trips
        self.final = final


class Poster:
    """A connection-keeping sender for one sink. Lives in one event loop."""

    def __init__(self, config: SinkConfig) -> None:
        self._config = config
        self._transport: httpx.AsyncHTTPTransport | None = None

    def _open(self, scheme: str) -> httpx.AsyncHTTPTransport:
        """Made at the first use: a CA file that is missing is one sink's trouble, not everybody's."""
        if self._transport is None:
            proxy = httpx.Proxy(self._config.proxy) if self._config.proxy else None
            verify = _tls(self._config) if scheme == "https" else False
            self._transport = httpx.AsyncHTTPTransport(
                verify=verify, proxy=proxy, trust_env=False, retries=0, limits=httpx.Limits(max_keepalive_connections=8)
            )
        return self._transport

    async def post(self, request: Request) -> Answer:
        """Send and read the answer. Raises SendError, whose text holds no secret."""
        place = masked(request.url)
        try:
            async with asyncio.timeout(self._config.timeout):
                return await self._post(request)
        except TimeoutError as error:
            raise SendError(f"{place} did not answer within {self._config.timeout:g} s.") from error
        except httpx.TimeoutException as error:
            raise SendError(f"{place} did not answer within {self._config.timeout:g} s.") from error
        except (httpx.HTTPError, OSError, ssl.SSLError) as error:
            raise explained(error, place) from None  # the chain may quote the address
        except (httpx.InvalidURL, ValueError, UnicodeError):
            raise SendError(f"{place} is no address that can be called.", final=True) from None

    async def _post(self, request: Request) -> Answer:
        parts = urlsplit(request.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SendError("The sink's address is no http:// or https:// address.", trips=False, final=True)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        transport = self._open(parts.scheme)
        url = httpx.URL(request.url)
        headers = {"User-Agent": "infradoc", "Accept-Encoding": "identity", **request.headers, "Host": _host(url)}
        extensions: dict[str, object] = {"timeout": self._phases()}
        if self._config.proxy:
            self._judge_literal(parts.hostname)
            return await self._exchange(transport, url, headers, request.body, extensions)
        addresses = await self._resolve(parts.hostname, port)
        extensions["sni_hostname"] = url.raw_host.decode("ascii")
        for number, address in enumerate(addresses, 1):
            try:
                place = url.copy_with(host=address)
                return await self._exchange(transport, place, headers, request.body, extensions)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if number == len(addresses):  # a host may have an IPv6 address that leads nowhere from here
                    raise
        raise SendError(f"The host name {parts.hostname} has no address.")

    async def _exchange(
        self,
        transport: httpx.AsyncHTTPTransport,
        url: httpx.URL,
        headers: dict[str, str],
        body: bytes,
        extensions: dict[str, object],
    ) -> Answer:
        sent = httpx.Request("POST", url, headers=headers, content=body, extensions=extensions)
        response = await transport.handle_async_request(sent)
        try:
            return Answer(response.status_code, dict(response.headers), await _read(response))
        finally:
            await response.aclose()

    def _phases(self) -> dict[str, float]:
        total = self._config.timeout
        return {"connect": min(CONNECT_SECONDS, total), "read": total, "write": total, "pool": total}

    async def _resolve(self, host: str, port: int) -> list[str]:
        """The addresses of `host`, the best first; refused when any of them may not be called. Raises SendError."""
        try:
            found = await in_thread(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), "alerts-dns")
        except UnicodeError as error:
            raise SendError(f"{host[:80]} is no host name.", "Check the spelling.", trips=False) from error
        except socket.gaierror as error:
            raise SendError(f"The host name {host} is not known: {error.strerror}.", "Check the spelling.") from error
        addresses = [str(entry[4][0]) for entry in found]
        for address in addresses:
            self._judge(address, host)
        return addresses[:MOST_ADDRESSES]

    def _judge_literal(self, host: str) -> None:
        """With a proxy, names are resolved there; an address written out is judged here all the same."""
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return
        self._judge(host, host)

    def _judge(self, address: str, host: str) -> None:
        why = refusal(address, self._config.allow_private)
        if why:
            hint = "Set allow_private = true for this sink if that is meant." if "metadata" not in why else ""
            raise SendError(f"Nothing is sent to {host}: {why}.", hint, trips=False)

    async def close(self) -> None:
        """Close connections."""
        if self._transport is not None:
            await self._transport.aclose()


def _host(url: httpx.URL) -> str:
    return url.netloc.decode("ascii")


async def _read(response: httpx.Response) -> bytes:
    body = b""
    assert isinstance(response.stream, httpx.AsyncByteStream)
    async for part in response.stream:
        body += part
        if len(body) > MOST_BYTES:
            return body[:MOST_BYTES]
    return body


def _tls(config: SinkConfig) -> ssl.SSLContext:
    try:
        if config.ca_file:
            open_regular(Path(config.ca_file)).close()  # OpenSSL would wait for ever for the writer of a pipe
        return ssl.create_default_context(cafile=config.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or str(error)
        message = f"The CA file {config.ca_file} of the sink {config.name} cannot be used: {reason}."
        raise SendError(message, "It must hold PEM.", trips=False) from error


def explained(error: BaseException, place: str) -> SendError:
    """The sentence for a failed attempt, found in the chain of causes."""
    steps: list[BaseException] = []
    step: BaseException | None = error
    while step is not None and len(steps) < 10:
        steps.append(step)
        step = step.__cause__ or step.__context__
    for cause in steps:
        if isinstance(cause, ssl.SSLCertVerificationError):
            why = cause.verify_message or "it is not trusted"
            hint = (
                "Renew it there."
                if "expired" in why
                else "Set ca_file for this sink if it has an authority of its own."
            )
            return SendError(f"The certificate of {place} is refused: {why}.", hint)
        if isinstance(cause, ssl.SSLError):
            return SendError(f"TLS with {place} failed: {cause.reason or 'no reason given'}.", "Is it plain http?")
        if isinstance(cause, ConnectionRefusedError):
            return SendError(f"{place} refuses the connection.", "Is the receiver running on that port?")
    if isinstance(error, httpx.ProxyError):
        return SendError(f"The proxy to {place} failed.", "Check `proxy` of this sink.")
    reasons = [cause.strerror for cause in reversed(steps) if isinstance(cause, OSError) and cause.strerror]
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError | httpx.WriteError):
        return SendError(f"{place} broke the connection off{f': {reasons[0]}' if reasons else ''}.")
    return SendError(f"{place} cannot be reached: {reasons[0] if reasons else type(error).__name__}.")
