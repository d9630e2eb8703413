"""The real program in a real terminal against the real engine: see the fault, apply the fix, read the verdict, quit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infradoc.config import Auth
from infradoc.demo.children import start_engine, start_load
from infradoc.demo.faults import LEAK, MODEL
from infradoc.fleet.engine_view import EngineView
from infradoc.remediation.admin import AdminClient

pytestmark = pytest.mark.serial


class Terminal:
    """One tmux server of its own with one window."""

    def __init__(self, folder: Path, width: int, height: int, command: list[str], **environment: str) -> None:
        self._socket, self._status = str(folder / "tmux.sock"), folder / "exit_status"
        pairs = [f"{name}={value}" for name, value in environment.items()]
        bare = ["env", "-u", "COLUMNS", "-u", "LINES", "TERM=xterm-256color", "LC_ALL=C.UTF-8", *pairs, *command]
        # tmux 3.3 at times misses that its child ended and never tells how; a shell does.
        shell = ["sh", "-c", '"$@"; echo $? > "$0"', str(self._status), *bare]
        size = ["-x", str(width), "-y", str(height)]
        self._tmux("-f", os.devnull, "new-session", "-d", "-s", "it", *size, *shell)
        self._tmux("set-option", "-g", "remain-on-exit", "on")

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-u", "-S", self._socket, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def text(self) -> str:
        """What is on the screen."""
        return self._tmux("capture-pane", "-p", "-t", "it")

    def press(self, *keys: str) -> None:
        """Send keys by tmux's names."""
        self._tmux("send-keys", "-t", "it", *keys)

    def see(self, pattern: str, seconds: float) -> str:
        """Wait until the screen holds the pattern."""
        end = time.monotonic() + seconds
        while not re.search(pattern, shown := self.text):
            assert time.monotonic() < end, f"{pattern!r} did not come in {seconds:g} s:\n{shown}"
            time.sleep(0.2)
        return shown

    def resize(self, width: int, height: int) -> None:
        """Another size of the terminal."""
        self._tmux("resize-window", "-t", "it", "-x", str(width), "-y", str(height))

    def exit_code(self, seconds: float) -> int:
        """Wait for the program's end; as a shell counts: 128 more than the number of the signal that ended it."""
        end = time.monotonic() + seconds
        while not (self._status.is_file() and (status := self._status.read_text())):
            assert time.monotonic() < end, f"it did not end:\n{self.text}"
            time.sleep(0.1)
        return int(status)

    def close(self) -> None:
        """End the tmux server and what runs in it."""
        self._tmux("kill-server")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """State and runtime files of this test alone; a short path, because that of a socket is limited."""
    if shutil.which("tmux") is None:
        if os.environ.get("CI"):
            pytest.fail("tmux is not installed: apt-get install tmux")
        pytest.skip("tmux is not installed")
    for name in ("INFRADOC_STATE_DIR", "INFRADOC_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    return tmp_path


@pytest.fixture
def engine(folder: Path) -> Iterator[str]:
    """The bundled engine, told that it may be broken on request, under load."""
    child, url = start_engine(MODEL, LEAK.serve, folder / "infradoc_runtime_dir")
    with child, start_load(url, LEAK.load, 1, 170.0, folder / "client.jsonl"):
        yield url


def test_from_the_first_screen_to_the_verdict(engine: str, folder: Path) -> None:
    command = [sys.executable, "-P", "-m", "infradoc", "tui", engine, "--baseline", "6s", "--hold", "13s"]
    passed = {name: os.environ[name] for name in ("INFRADOC_STATE_DIR", "INFRADOC_RUNTIME_DIR")}
    screen = Terminal(folder, 140, 45, command, **passed)
    try:
        screen.see(r"generated tokens/s [1-9]", 40)  # the load is on the first panel
        screen.see(r"L live [1-9]", 20)  # the engine's own map of blocks
        screen.press("o")
        screen.see(r"by owner(.|\n)*[A-Z] [0-9a-f]{8} [1-9]\d* \(", 10)
        screen.press("o")
        screen.see(r"by age(.|\n)*\d (<1 s|\d+ s-\d+ (s|min)): [1-9]", 10)
        screen.press("o")
        screen.see(r"by state(.|\n)*L live [1-9]", 10)
        token = next((folder / "infradoc_runtime_dir").glob("engine-*.token")).read_text().strip()
        with AdminClient(engine, token) as admin:
            assert LEAK.switch is not None
            admin.switch_fault(LEAK.switch.name, LEAK.switch.parameters)
        screen.see(r"! leaked 54", 60)
        screen.see(LEAK.finding, 60)
        screen.resize(20, 5)
        screen.see("Make the terminal", 10)
        screen.resize(140, 45)
        screen.see(rf"{LEAK.finding}(.|\n)*Queue", 10)
        screen.press("f", "Enter")
        screen.see("Wrong if", 10)
        screen.press("End")
        screen.see("Press a to apply", 30)
        screen.press("a")
        screen.see("Type apply and press Enter", 10)
        screen.press("no", "Enter")
        screen.see("That is not the word apply", 10)
        screen.press("apply", "Enter")
        screen.see(r"done: defragment \(reclaimed 54", 60)
        screen.see(r"hold: measuring after the change: \d+ s left of at most 13 s", 60)  # in sight, with the time left
        screen.see(r"verdict: (fixed|not_fixed|worse|inconclusive)", 120)  # how fast it is now depends on the machine
        screen.see(r"memory-leak is quiet: 1 -> 0", 10)
        blocks = EngineView(engine, Auth()).blocks()
        assert blocks["ledger"]["leaked"] == 0
        screen.press("Escape")
        screen.see(r"─[FoCLbR]*X", 10)  # the fix is a mark on the time axis, perhaps beside another
        screen.press("q")
        assert screen.exit_code(15) == 0
    finally:
        screen.close()
