"""Shared by the agent's tests: recorded data, and a real HTTP server that misbehaves on request."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

DATA = Path(__file__).resolve().parents[1] / "data"


@pytest.fixture(scope="session")
def recordings_dir() -> Path:
    """Recordings of real servers."""
    return DATA / "recordings"


@pytest.fixture(scope="session")
def samples_dir() -> Path:
    """Raw metrics pages of real servers."""
    return DATA / "recordings" / "samples"


@pytest.fixture(scope="session")
def vllm_page(samples_dir: Path) -> bytes:
    """One page of a loaded vLLM."""
    return (samples_dir / "vllm_metrics_loaded.txt").read_bytes()


Handler = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class FakeServer:
    """A real server on a free port; `routes` maps a path to what answers it. `requests` keeps (path, headers)."""

    port: int
    scheme: str
    routes: dict[str, Handler] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def page(
        self, path: str, body: bytes | Callable[[], bytes], status: int = 200, kind: str = "text/plain; version=0.0.4"
    ) -> None:
        """Answer `path` with a body of known length."""

        def answer(request: BaseHTTPRequestHandler) -> None:
            data = body() if callable(body) else body
            request.send_response(status)
            request.send_header("Content-Type", kind)
            request.send_header("Content-Length", str(len(data)))
            request.end_headers()
            request.wfile.write(data)

        self.routes[path] = answer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        fake: FakeServer = self.server.fake  # type: ignore[attr-defined]
        fake.requests.append((self.path, dict(self.headers)))
        route = fake.routes.get(self.path.split("?")[0])
        if route is None:
            self.send_error(404)
            return
        route(self)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def _start(context: ssl.SSLContext | None) -> tuple[ThreadingHTTPServer, FakeServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    fake = FakeServer(server.server_address[1], "https" if context else "http")
    server.fake = fake  # type: ignore[attr-defined]
    server.handle_error = lambda request, address: None  # type: ignore[method-assign]
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    return server, fake


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """A plain HTTP server with no pages yet."""
    running, fake = _start(None)
    yield fake
    running.shutdown()
    running.server_close()


@pytest.fixture
def tls_server(tls_files: tuple[Path, Path]) -> Iterator[FakeServer]:
    """An HTTPS server whose certificate only `tls_files[0]` vouches for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls_files[1])
    running, fake = _start(context)
    yield fake
    running.shutdown()
    running.server_close()


@pytest.fixture(scope="session")
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An authority made for this run, and the chain and key of a server at 127.0.0.1 that it signed."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    return folder / "ca.pem", folder / "server.pem"


@pytest.fixture
def closed_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No configuration, token or proxy of the machine leaks in; the working folder is empty."""
    for name in ("INFRADOC_CONFIG", "INFRADOC_ADMIN_TOKEN", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("INFRADOC_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool], float], None]:
    """Poll a condition; fail when it does not come true in time."""

    def wait(condition: Callable[[], bool], seconds: float = 10.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "the condition did not come true in time"
            time.sleep(0.02)

    return wait
