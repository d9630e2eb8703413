"""The real command in a process of its own."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


class Running:
    """`infradoc watch --json`, its lines, and its page."""

    def __init__(
        self, folder: Path, config: str, *flags: str, env: dict[str, str] | None = None, local: bool = False
    ) -> None:
        """`local`: the configuration is the one of the folder it runs in, not named on the command line."""
        self.folder = folder
        self.config = folder / "infradoc.toml"
        self.config.write_text(config)
        command = [sys.executable, "-P", "-m", "infradoc", "watch", "--json", "--listen", "127.0.0.1:0", *flags]
        command += [] if local else ["--config", str(self.config)]
        state = {"INFRADOC_STATE_DIR": str(folder / "state")}
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, **state, **(env or {})},
        )
        self.seen: list[dict[str, Any]] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._queue.put(line)
        self._queue.put(None)

    def wait_for(self, event: str, seconds: float = 60.0) -> dict[str, Any]:
        """The next line of that event."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                line = self._queue.get(timeout=left)
            except queue.Empty:
                break
            if line is None:
                raise AssertionError(f"it ended: {self.process.communicate()[1]}")
            self.seen.append(json.loads(line))
            if self.seen[-1]["event"] == event:
                return self.seen[-1]
        raise AssertionError(f"no {event} within {seconds} s; seen: {self.seen}")

    def url(self) -> str:
        """Where its pages are."""
        port = self.wait_for("watching")["text"].rsplit(" ", 1)[1]
        return f"http://127.0.0.1:{port}"

    def end(self, number: int = signal.SIGTERM, seconds: float = 30.0) -> int:
        """Its exit code after a signal."""
        self.process.send_signal(number)
        return self.process.wait(seconds)


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts watches, and ends those that a test left running."""
    made: list[Running] = []

    def start(config: str, *flags: str, **more: Any) -> Running:
        made.append(Running(tmp_path, config, *flags, **more))
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait(10)
