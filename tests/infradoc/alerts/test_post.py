"""One request: bounded in every way, to judged addresses only, and silent about secrets."""

from __future__ import annotations

import asyncio
import datetime
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from infradoc.alerts.address import refusal
from infradoc.alerts.config import SinkConfig
from infradoc.alerts.post import MOST_BYTES, Poster, SendError
from infradoc.alerts.sinks.base import Answer, Request

BODY = b'{"x":1}'


def post(url: str, **options: Any) -> Answer:
    """One POST with a sink of these options."""
    settings = {"allow_private": True, "timeout": 2.0, **options}

    async def go() -> Answer:
        poster = Poster(SinkConfig("s", "webhook", url=url, **settings))
        try:
            return await poster.post(Request(url, {"Content-Type": "application/json"}, BODY))
        finally:
            await poster.close()

    return asyncio.run(go())


@contextmanager
def raw_server(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that says what it likes on a bare connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                link, _ = listener.accept()
            except OSError:
                return
            with link:
                try:
                    link.recv(65536)
                    talk(link)
                except OSError:
                    continue

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/hook?key=SECRETKEY"
    listener.close()


def test_an_answer(receiver: Any) -> None:
    receiver.answers(201, b"thanks", X_Y="z")
    answer = post(f"{receiver.url}/a?b=c")
    assert (answer.status, answer.body, answer.headers["x-y"]) == (201, b"thanks", "z")
    ((path, headers, body),) = receiver.got
    assert path == "/a?b=c" and body == BODY and headers["host"] == f"127.0.0.1:{receiver.port}"


def test_redirects_are_not_followed(receiver: Any, other_receiver: Any) -> None:
    receiver.answers(307, b"", Location=other_receiver.url)
    assert post(receiver.url).status == 307 and other_receiver.got == []


def test_of_a_long_answer_the_beginning_is_read(receiver: Any) -> None:
    receiver.answers(200, b"x" * 5_000_000)
    assert len(post(receiver.url).body) == MOST_BYTES


def drip(link: socket.socket) -> None:
    for _ in range(600):
        link.sendall(b"H" if _ == 0 else b"T")
        time.sleep(0.05)


def slow_body(link: socket.socket) -> None:
    link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    drip(link)


@pytest.mark.parametrize("talk", [lambda link: time.sleep(30), drip, slow_body], ids=["mute", "drip", "body"])
def test_the_time_limit_is_one_for_everything(talk: Callable[[socket.socket], None]) -> None:
    with raw_server(talk) as url, pytest.raises(SendError, match=r"did not (answer|finish)") as caught:
        post(url, timeout=0.4)
    assert caught.value.trips and not caught.value.final and "SECRETKEY" not in str(caught.value)


@pytest.mark.parametrize("said", [b"", b"220 smtp ready\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"])
def test_broken_answers(said: bytes) -> None:
    with raw_server(lambda link: link.sendall(said)) as url, pytest.raises(SendError, match="broke the connection off"):
        post(url)


def test_nobody_listens(closed_port: int) -> None:
    with pytest.raises(SendError, match=f"http://127.0.0.1:{closed_port} refuses the connection"):
        post(f"http://127.0.0.1:{closed_port}")


@pytest.mark.parametrize("url", ["ftp://h/x", "http://", "x", "http://[::1", "http://h:99999/", "http://\udcff/"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(SendError) as caught:
        post(url)
    assert caught.value.final


PRIVATE = [
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.1.1", "100.64.0.1", "::1", "fe80::1", "fc00::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "0.0.0.0", "::", "224.0.0.1", "ff02::1",
    "255.255.255.255", "198.18.0.1", "192.0.2.1", "240.0.0.1",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_refused(address: str) -> None:
    assert refusal(address, allow_private=False)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_addresses_are_taken(address: str) -> None:
    assert refusal(address, allow_private=False) == ""


@pytest.mark.parametrize("address", ["169.254.169.254", "fd00:ec2::254", "100.100.100.200", "::ffff:169.254.169.254"])
def test_metadata_services_are_refused_whatever_is_allowed(address: str) -> None:
    assert "metadata" in refusal(address, allow_private=True)


def test_private_addresses_may_be_allowed() -> None:
    assert not any(refusal(address, allow_private=True) for address in ("127.0.0.1", "10.0.0.1", "fe80::1%eth0"))


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Names resolve to these addresses, one list per question; returns the names asked for."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def lookup(host: Any, port: Any, *rest: Any, **named: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name in ("127.0.0.1", "127.0.0.2", "8.8.8.8"):
            return real(host, port, *rest, **named)
        asked.append(name)
        found = answers[min(len(asked), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    return asked


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["169.254.169.254"]])
def test_names_of_private_addresses_are_refused(
    receiver: Any, monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    resolving(monkeypatch, addresses)
    with pytest.raises(SendError, match=r"Nothing is sent to hooks.example.com: .* is ") as caught:
        post(f"http://hooks.example.com:{receiver.port}/", allow_private=False)
    assert receiver.got == [] and not caught.value.trips


def test_a_name_that_resolves_differently_a_moment_later_changes_nothing(
    receiver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: the first answer was judged, so the connection goes there, and nobody asks again."""
    asked = resolving(monkeypatch, ["127.0.0.1"], ["10.255.255.1"])
    assert post(f"http://hooks.example.com:{receiver.port}/x").status == 200
    assert asked == ["hooks.example.com"]
    assert receiver.got[0][1]["host"] == f"hooks.example.com:{receiver.port}"


def test_an_address_that_leads_nowhere_is_not_the_end(receiver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, ["127.0.0.2", "127.0.0.1"])
    assert post(f"http://hooks.example.com:{receiver.port}/x").status == 200 and len(receiver.got) == 1


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/", "http://2130706433:{port}/", "http://localhost:{port}/"])
def test_this_machine_is_refused_however_it_is_written(receiver: Any, url: str) -> None:
    with pytest.raises(SendError):
        post(url.format(port=receiver.port), allow_private=False)
    assert receiver.got == []


def test_proxies_of_the_environment_are_not_used(
    receiver: Any, other_receiver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, other_receiver.url)
    assert post(receiver.url).status == 200 and other_receiver.got == []


def test_a_configured_proxy_is_used(other_receiver: Any) -> None:
    assert post("http://hooks.example.com/x", proxy=other_receiver.url).status == 200
    assert other_receiver.got[0][0] == "http://hooks.example.com/x"
    with pytest.raises(SendError, match=r"Nothing is sent to 10\.0\.0\.1"):
        post("http://10.0.0.1/x", proxy=other_receiver.url, allow_private=False)


@pytest.fixture
def authority(tmp_path: Path) -> tuple[trustme.CA, str]:
    """An authority and the file of its certificate."""
    made = trustme.CA()
    made.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return made, str(tmp_path / "ca.pem")


def test_certificates_are_verified_for_the_name_in_the_address(
    authority: tuple[trustme.CA, str], tls_receiver: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca, ca_file = authority
    ca.issue_cert("hooks.example.com").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "chain.pem"))
    for server in tls_receiver(tmp_path / "chain.pem"):
        resolving(monkeypatch, ["127.0.0.1"])
        assert post(f"https://hooks.example.com:{server.port}/x", ca_file=ca_file).status == 200
        with pytest.raises(SendError, match=r"The certificate of https://other.example.com:\d+/… is refused"):
            post(f"https://other.example.com:{server.port}/x", ca_file=ca_file)
        with pytest.raises(SendError, match=r"is refused: .*\. Set ca_file for this sink"):
            post(f"https://hooks.example.com:{server.port}/x")
        assert len(server.got) == 1


def test_an_expired_certificate_is_one_clear_sentence(
    authority: tuple[trustme.CA, str], tls_receiver: Any, tmp_path: Path
) -> None:
    ca, ca_file = authority
    ended = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    chain = ca.issue_cert("127.0.0.1", not_before=ended - datetime.timedelta(days=9), not_after=ended)
    chain.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "chain.pem"))
    for server in tls_receiver(tmp_path / "chain.pem"):
        with pytest.raises(SendError) as caught:
            post(f"{server.url}/hook?key=SECRETKEY", ca_file=ca_file)
        place = f"https://127.0.0.1:{server.port}/…"
        assert str(caught.value) == f"The certificate of {place} is refused: certificate has expired. Renew it there."


def test_a_ca_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no PEM")
    with pytest.raises(SendError, match=r"The CA file .* of the sink s cannot be used"):
        post("https://127.0.0.1:1/", ca_file=str(tmp_path / "ca.pem"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SendError, match="cannot be used: it is no regular file"):
        post("https://127.0.0.1:1/", ca_file=str(tmp_path / "pipe"))


def test_logs_hold_no_secret(receiver: Any, closed_port: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        post(f"{receiver.url}/services/SECRETKEY?token=SECRETKEY")
        with pytest.raises(SendError):
            post(f"http://127.0.0.1:{closed_port}/SECRETKEY")
    assert "SECRETKEY" not in caplog.text
    assert "SECRETKEY" not in repr(Request("http://h/SECRETKEY", {"a": "SECRETKEY"}, b"SECRETKEY"))


def test_a_name_service_that_hangs_holds_up_neither_others_nor_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty sinks whose names hang, one that is well: the well one is served, and the loop ends at once."""
    real, release = socket.getaddrinfo, threading.Event()

    def lookup(host: Any, *rest: Any, **more: Any) -> Any:
        if host == "hangs.example":
            release.wait(30)
        return real("127.0.0.1" if host == "well.example" else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)

    async def go(place: str) -> None:
        async def one(host: str) -> str:
            url = place.replace("127.0.0.1", host)
            poster = Poster(SinkConfig("s", "webhook", url=url, allow_private=True, timeout=1.0))
            try:
                await poster.post(Request(url, {}, BODY))
                return "sent"
            except SendError as error:
                return str(error)
            finally:
                await poster.close()

        answers = await asyncio.gather(*(one("hangs.example") for _ in range(30)), one("well.example"))
        assert all("did not answer within 1 s" in answer for answer in answers[:-1]) and answers[-1] == "sent"

    ended = threading.Event()

    def run(place: str) -> None:
        asyncio.run(go(place))
        ended.set()

    with raw_server(lambda link: link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) as place:
        threading.Thread(target=run, args=(place,), daemon=True).start()
        try:
            assert ended.wait(20), "the loop waits for names that hang"
        finally:
            release.set()


@pytest.mark.parametrize("address", ["169.254.170.23", "fd00:ec2::23", "168.63.129.16", "::ffff:169.254.169.254"])
def test_services_that_hand_out_credentials_are_refused_whatever_is_allowed(address: str) -> None:
    assert "metadata" in refusal(address, True)
