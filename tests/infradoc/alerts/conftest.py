"""Findings to tell of, and a real HTTP receiver that answers as it is told."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from infradoc.alerts.config import AlertsConfig, alerts_config
from infradoc.alerts.core import Core, Flush
from infradoc.alerts.message import incident_message
from infradoc.alerts.timing import Timing
from infradoc.config import load_config

Finding = dict[str, Any]
Reply = tuple[int, dict[str, str], bytes]


@pytest.fixture(scope="session")
def finding() -> Callable[..., Finding]:
    """A report v1 finding, with what a test wants to be different."""

    def make(name: str = "kv-thrashing-preemption", severity: str = "warning", **other: Any) -> Finding:
        made: Finding = {
            "id": name,
            "severity": severity,
            "confidence": 0.9,
            "role": "root",
            "title": f"Title of {name}",
            "cause": "The pool holds fewer blocks than the running requests need.",
            "impact": "Requests are computed twice.",
            "evidence": [
                {"text": "KV usage 0.98 over 10 s", "source": "/metrics", "signal": "s", "value": 0.98, "unit": None},
            ],
            "actions": [
                {
                    "knob": "max_num_seqs", "change": "decrease", "from": 64, "to": 32, "flag": "--max-num-seqs 32",
                    "live": False, "risk": "reversible", "cost": "Fewer requests run at once.", "why": "w",
                }
            ],
            "falsifier": "Preemptions go on with half the requests.",
            "explains": [],
            "playbook": name,
        }  # fmt: skip
        return {**made, **other}

    return make


@pytest.fixture
def chinese() -> Callable[[Finding], Finding]:
    """The same finding as a watch in Chinese tells it."""

    def turn(found: Finding) -> Finding:
        return {**found, "title": "运行中的请求反复失去 KV 块", "cause": "KV 块不够用。", "falsifier": "减半后仍抢占。"}

    return turn


@pytest.fixture
def write_config(tmp_path: Path) -> Callable[[str], AlertsConfig]:
    """`[alerts]` of a file with this text."""

    def write(text: str) -> AlertsConfig:
        path = tmp_path / "infradoc.toml"
        path.write_text(text, encoding="utf-8")
        return alerts_config(load_config(str(path)))

    return write


@dataclass
class Receiver:
    """What came in, and what answers. `reply` is called with path, headers and body."""

    port: int = 0
    scheme: str = "http"
    got: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    reply: Callable[[str, Mapping[str, str], bytes], Reply] = lambda path, headers, body: (200, {}, b"ok")

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def answers(self, status: int, body: bytes = b"", **headers: str) -> None:
        """The same answer to everything."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.reply = lambda path, sent, content: (status, named, body)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        receiver: Receiver = self.server.receiver  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        receiver.got.append((self.path, headers, body))
        status, named, answer = receiver.reply(self.path, headers, body)
        self.send_response(status)
        for name, value in named.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def _serve(receiver: Receiver, context: ssl.SSLContext | None) -> Iterator[Receiver]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        receiver.scheme = "https"
    receiver.port = server.server_address[1]
    server.receiver = receiver  # type: ignore[attr-defined]
    server.handle_error = lambda request, address: None  # type: ignore[method-assign]
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield receiver
    server.shutdown()
    server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver on a free port of this machine."""
    yield from _serve(Receiver(), None)


@pytest.fixture
def other_receiver() -> Iterator[Receiver]:
    """A second one."""
    yield from _serve(Receiver(), None)


@pytest.fixture
def tls_receiver() -> Callable[[Path], Iterator[Receiver]]:
    """A receiver with the certificate and key of a file."""

    def serve(chain: Path) -> Iterator[Receiver]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain)
        return _serve(Receiver(), context)

    return serve


@pytest.fixture
def message(finding: Callable[..., Finding]) -> Callable[..., dict[str, Any]]:
    """A message of findings (by language) as the core makes it; `ends` makes it the one that resolves them."""

    def make(
        *found: Finding,
        target: str = "prod",
        system: str | None = "vllm",
        ends: bool = False,
        zh: Callable[[Finding], Finding] | None = None,
    ) -> dict[str, Any]:
        from infradoc.alerts.clean import clean_finding, clean_text

        core = Core(Timing(group_wait=0, group_interval=1, resolve_after=1))
        texts = {
            item["id"]: {"en": clean_finding(item), **({"zh": clean_finding(zh(item))} if zh else {})}
            for item in found or (finding(),)
        }
        name = clean_text(target)
        core.observe(1_700_000_000.0, name, system, texts)
        (flush,) = core.plan(1_700_000_000.0)
        if ends:
            core.commit(flush)
            core.observe(1_700_000_100.0, name, system, {})
            (flush,) = core.plan(1_700_000_100.0)
        return _message(flush)

    return make


def _message(flush: Flush) -> dict[str, Any]:
    return incident_message(flush, flush.entries, lambda name, lang: "")
