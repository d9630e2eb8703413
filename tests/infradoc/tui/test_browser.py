"""`infradoc tui` in a web page: textual-serve, loaded, looked at and typed into with headless Chromium."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.peer
SERVE = (
    "from textual_serve.server import Server; import sys; Server(sys.argv[1], '127.0.0.1', int(sys.argv[2])).serve()"
)
COLOURS = """(() => { const layer = document.querySelector('canvas.xterm-text-layer'); if (!layer) return 0;
  const data = layer.getContext('2d').getImageData(0, 0, layer.width, layer.height).data; const seen = new Set();
  for (let i = 0; i < data.length; i += 4) seen.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
  return seen.size; })()"""


@pytest.fixture
def page(recordings_dir: Path) -> Iterator[str]:
    """The address of the served program."""
    pytest.importorskip("textual_serve")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = f"{sys.executable} -P -m infradoc tui {recordings_dir / 'vllm-05'}"
    command = [sys.executable, "-c", SERVE, program, str(port)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{port}/"
        end = time.monotonic() + 30
        while True:
            try:
                urllib.request.urlopen(url, timeout=5).close()
                break
            except OSError:
                assert time.monotonic() < end and child.poll() is None, "textual-serve did not start"
                time.sleep(0.1)
        yield url
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[str]:
    """The address of a headless Chromium's debugging interface."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("chromium is not installed")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", f"--user-data-dir={tmp_path}"]
    child = subprocess.Popen([program, *flags], stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert child.stderr is not None
        found = None
        while found is None and (line := child.stderr.readline()):
            found = re.search(r"DevTools listening on ws://([^/]+)/", line)
        assert found is not None, "Chromium did not start"
        yield found.group(1)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


class Tab:
    """One page in the browser."""

    def __init__(self, socket: Any) -> None:
        self._socket, self._number = socket, 0

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the DevTools protocol."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            answer: dict[str, Any] = await self._socket.receive_json(timeout=30)
            if answer.get("id") == self._number:
                return dict(answer["result"])

    async def value(self, code: str) -> Any:
        """What an expression in the page gives."""
        return (await self.ask("Runtime.evaluate", expression=code))["result"].get("value")

    async def until(self, code: str, seconds: float) -> None:
        """Wait until an expression in the page is true."""
        end = time.monotonic() + seconds
        while not await self.value(code):
            assert time.monotonic() < end, f"{code} did not come true"
            await asyncio.sleep(0.3)

    async def press(self, key: str) -> None:
        """Press and let go."""
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if kind == "keyDown" else {}
            await self.ask("Input.dispatchKeyEvent", type=kind, key=key, **text)


@asynccontextmanager
async def opened(address: str, url: str) -> AsyncIterator[Tab]:
    """A tab of the browser that shows the page."""
    from aiohttp import ClientSession

    async with ClientSession() as session:
        async with session.put(f"http://{address}/json/new?{url}") as answer:
            target = (await answer.json())["webSocketDebuggerUrl"]
        async with session.ws_connect(target, max_msg_size=0) as socket:
            yield Tab(socket)


def test_the_page_shows_the_screen_and_takes_keys(page: str, browser: str) -> None:
    async def run() -> None:
        async with opened(browser, page) as tab:
            await tab.until("document.querySelectorAll('.xterm-screen canvas').length > 0", 30)
            await tab.until(f"{COLOURS} > 20", 40)  # lines, bars and letters of several colours, drawn by the program
            assert not await tab.value("document.body.classList.contains('-closed')")
            await tab.until("(document.querySelector('textarea').focus(), true)", 5)
            await tab.press("q")
            await tab.until("document.body.classList.contains('-closed')", 20)  # the program ended by the key

    asyncio.run(run())
