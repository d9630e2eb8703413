"""`fix` and `undo` reach the admin API by the way that `diagnose` watches: authority, client certificate, proxy."""

from __future__ import annotations

import json
import os
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from infradoc.cli import undo
from infradoc.config import Auth, load_config
from infradoc.errors import InfradocError
from infradoc.remediation.admin import AdminBusy, AdminClient, AdminError, AdminLost, refusal
from infradoc.remediation.journal import Entry, Journal
from infradoc.remediation.session import Session
from infradoc.sources.fetch import Fetcher

KNOB = {"value": 16, "origin": "flag", "bounds": [1, 1024], "change": "live", "flag": "--max-num-seqs"}
CONFIG = {"version": 3, "engine": "infradoc", "knobs": {"max_num_seqs": KNOB}}


class _Admin(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers["Authorization"]))  # type: ignore[attr-defined]
        data = json.dumps(CONFIG).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def running(context: ssl.SSLContext | None, handler: type[_Admin] = _Admin) -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads, server.seen = True, []
    server.handle_error = lambda request, address: None
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """An authority, a server's and a client's certificate."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    for name, identity in (("server", "127.0.0.1"), ("client", "infradoc@example.org")):
        authority.issue_cert(identity).private_key_and_cert_chain_pem.write_to_path(str(tmp_path / f"{name}.pem"))
    return {name: str(tmp_path / f"{name}.pem") for name in ("ca", "server", "client")}


@pytest.fixture
def guarded(files: dict[str, str]) -> Iterator[Any]:
    """An admin API that talks only to clients with a certificate of the authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files["server"])
    context.load_verify_locations(files["ca"])
    context.verify_mode = ssl.CERT_REQUIRED
    yield from running(context)


@pytest.fixture
def proxy() -> Iterator[Any]:
    """A proxy that answers for every host."""
    yield from running(None)


@pytest.fixture
def toml(tmp_path: Path, files: dict[str, str], guarded: Any) -> Path:
    path = tmp_path / "infradoc.toml"
    path.write_text(
        f'[targets.t]\nurl = "https://127.0.0.1:{guarded.server_port}"\nhost = false\n'
        f'[targets.t.auth]\nca_file = "{files["ca"]}"\nclient_cert_file = "{files["client"]}"\n'
    )
    return path


def test_the_client_certificate_of_the_target_is_shown(guarded: Any, files: dict[str, str]) -> None:
    url = f"https://127.0.0.1:{guarded.server_port}"
    with AdminClient(url, "t", Auth(ca_file=files["ca"], client_cert_file=files["client"])) as admin:
        assert admin.config().version == 3
    with AdminClient(url, "t", Auth(ca_file=files["ca"])) as admin, pytest.raises(AdminError, match="No connection to"):
        admin.config()


def test_a_certificate_that_cannot_be_used_is_one_sentence(files: dict[str, str]) -> None:
    with pytest.raises(InfradocError, match=r"client certificate .*gone\.pem cannot be used"):
        AdminClient("https://127.0.0.1:9", "t", Auth(ca_file=files["ca"], client_cert_file="gone.pem"))


@pytest.mark.parametrize("key", ["ca_file", "client_cert_file"])
def test_a_pipe_in_place_of_a_certificate_holds_nothing_up(key: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InfradocError, match="pipe cannot be used: it is no regular file"):
        AdminClient("https://127.0.0.1:9", "t", Auth(**{key: str(tmp_path / "pipe")}))


def test_the_proxy_of_the_target_is_used(proxy: Any) -> None:
    with AdminClient("http://engine.invalid:8000", "t", Auth(proxy=f"http://127.0.0.1:{proxy.server_port}")) as admin:
        assert admin.config().version == 3
    assert proxy.seen == [("http://engine.invalid:8000/admin/config", "Bearer t")]


def test_a_proxy_of_the_environment_does_not_catch_this_machine(proxy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with AdminClient(f"http://127.0.0.1:{proxy.server_port}", "t") as admin:
        assert admin.config().version == 3


def test_fix_uses_both(toml: Path, guarded: Any, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFRADOC_ADMIN_TOKEN", "tok")
    with Session("t", load_config(str(toml)), journal=journal) as session:
        assert session.admin.config().knobs["max_num_seqs"].value == 16
    assert guarded.seen == [("/admin/config", "Bearer tok")]


def test_fix_shows_the_token_to_the_server_that_was_asked_for(
    proxy: Any, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A URL on the command line, which no configuration knows."""
    monkeypatch.setenv("INFRADOC_ADMIN_TOKEN", "tok")
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.server_port}")
    monkeypatch.chdir(tmp_path)
    with Session("http://engine.invalid:8000", load_config(None), journal=journal) as session:
        session.admin.config()
    assert proxy.seen == [("http://engine.invalid:8000/admin/config", "Bearer tok")]


def test_undo_uses_both(
    toml: Path, guarded: Any, journal: Journal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INFRADOC_ADMIN_TOKEN", "tok")
    url = f"https://127.0.0.1:{guarded.server_port}"
    entry = journal.begin(Entry("intent", "c1", 1.0, url, "max_num_seqs", 16, 8, action="lower_max_num_seqs"))
    journal.follow(entry, "applied")
    assert undo.run(["t", "--config", str(toml)]) == 0
    assert guarded.seen and set(guarded.seen) == {("/admin/config", "Bearer tok")}
    assert "max_num_seqs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [("ALL_PROXY", "socks5://127.0.0.1:1", "SOCKS is not supported"), ("NO_PROXY", "[::1", "NO_PROXY")],
)
def test_a_proxy_variable_that_cannot_be_used_is_one_sentence(
    variable: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv(variable, value)
    for build in (lambda url: AdminClient(url, "t"), lambda url: Fetcher(url, Auth())):
        with pytest.raises(InfradocError, match=says):
            build("http://engine.invalid:8000")


@pytest.mark.parametrize(
    ("status", "code", "text", "kind"),
    [
        (503, "step_running", "a step has run for 9 s", AdminBusy),
        (503, "change_under_way", "another change", AdminBusy),
        (503, "change_under_way", "cut off. Already applied: max_num_seqs.", AdminLost),
        (503, "draining", "shutting down", AdminLost),
        (409, "not_possible", "no memory", AdminBusy),
    ],
)
def test_a_503_before_anything_began_is_no_loss(status: int, code: str, text: str, kind: type[AdminError]) -> None:
    answer = httpx.Response(status, json={"error": {"code": code, "message": text}})
    assert type(refusal("http://h:1/admin/config", answer)) is kind


class _Dropping(_Admin):
    def do_GET(self) -> None:
        self.server.drops -= 1  # type: ignore[attr-defined]
        if self.server.drops >= 0:  # type: ignore[attr-defined]
            linger = struct.pack("ii", 1, 0)  # closed with a reset, as an engine without memory for the request does
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.rfile.close()
            self.wfile.close()
            self.connection.close()
            self.close_connection = True
        else:
            super().do_GET()

    do_PATCH = do_GET


@pytest.fixture
def dropping() -> Iterator[Any]:
    yield from running(None, _Dropping)


@pytest.mark.parametrize("drops", [1, 2], ids=str)
def test_a_question_is_asked_again_when_its_connection_breaks(dropping: Any, drops: int) -> None:
    dropping.drops = drops
    with AdminClient(f"http://127.0.0.1:{dropping.server_port}", "t") as admin:
        assert admin.config().version == 3


def test_a_change_is_not_sent_twice(dropping: Any) -> None:
    dropping.drops = 1
    with AdminClient(f"http://127.0.0.1:{dropping.server_port}", "t") as admin, pytest.raises(AdminLost):
        admin.set("max_num_seqs", 8, 3)
    assert dropping.drops == 0
