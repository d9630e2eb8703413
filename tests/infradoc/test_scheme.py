"""The wrong one of http and https: one sentence that says so and the URL to use, wherever a URL is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infradoc import scheme
from infradoc.cli import app
from infradoc.config import Auth
from infradoc.remediation.admin import AdminClient, AdminError
from infradoc.sources.fetch import Fetcher, FetchError

pytestmark = pytest.mark.usefixtures("clean_environment")
COMMANDS = [
    ["diagnose", "{url}", "--window", "1s"],
    ["fix", "{url}", "--window", "1s"],
    ["lengths", "{url}"],
    ["bench", "{url}", "--class", "a:closed=1,count=1"],
]


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    """A port may be given out twice within the time that an answer is kept."""
    scheme._seen.clear()


@pytest.fixture(params=["http", "https"])
def pair(request: pytest.FixtureRequest, server: Any, tls_server: Any) -> tuple[str, str]:
    """A URL with the wrong scheme, and the right one."""
    right = (server if request.param == "http" else tls_server).url
    other = "https" if request.param == "http" else "http"
    return other + right[len(request.param) :], right


def test_a_fetch_names_the_other_url(pair: tuple[str, str]) -> None:
    wrong, right = pair
    fetcher = Fetcher(wrong, Auth())
    with pytest.raises(FetchError) as caught:
        fetcher.get(f"{wrong}/metrics")
    fetcher.close()
    assert caught.value.hint == f"Use {right}/metrics." and "not" in caught.value.message


def test_the_admin_client_names_it_too(pair: tuple[str, str]) -> None:
    wrong, right = pair
    with AdminClient(wrong, None) as admin, pytest.raises(AdminError) as caught:
        admin.config()
    assert caught.value.hint == f"Use {right}."


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command[0]))
def test_every_command_says_it(
    command: list[str], pair: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong, right = pair
    code = app.dispatch([word.format(url=wrong) for word in command])
    told = " ".join("".join(capsys.readouterr()).split())
    assert code not in (0, 1)
    assert f"speaks {'plain http, not https' if right.startswith('http:') else 'https, not plain http'}." in told
    assert f"Use {right}" in told


def test_the_right_scheme_and_a_dead_port_are_not_blamed(server: Any, tls_server: Any, closed_port: int) -> None:
    urls = [server.url, tls_server.url, f"http://127.0.0.1:{closed_port}", f"https://127.0.0.1:{closed_port}"]
    assert [scheme.wrong_scheme(url) for url in [*urls, "ftp://h", "http://h:99999", "http://"]] == [None] * 7


def test_the_page_of_a_proxy_in_front(server: Any) -> None:
    server.page("/metrics", b"<h1>400</h1>The plain HTTP request was sent to HTTPS port", status=400)
    fetcher = Fetcher(server.url, Auth())
    with pytest.raises(FetchError, match="speaks https, not plain http"):
        fetcher.get(f"{server.url}/metrics")
    fetcher.close()
