"""Child processes of the demo: the engine and the load. Whatever happens, none is left behind (see `child` too)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from infradoc.errors import InfradocError

READY = re.compile(r"ready on (http://\S+)")
STOP_SECONDS = 8.0


class ChildError(InfradocError):
    """A child did not start or ended too early; the text holds its own last words."""

    exit_code = 1


class Child:
    """One process in a session of its own, so that its workers can be stopped with it."""

    def __init__(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, "-P", "-m", "infradoc.demo.child", *argv]
        self.name = name
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})},
            start_new_session=True,
            text=True,
            errors="replace",
        )
        self.said: deque[str] = deque(maxlen=20)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.said.append(line.strip())

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def check(self) -> None:
        """Raises ChildError when the process has ended although it should run."""
        if not self.running:
            self._reader.join(1.0)
            words = self.said[-1] if self.said else "it said nothing"
            raise ChildError(f"The {self.name} ended with code {self._process.returncode}: {words}")

    def wait_for(self, pattern: re.Pattern[str], seconds: float) -> str:
        """The first group of `pattern` in what the child says. Raises ChildError when it ends or the time is up."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for line in list(self.said):
                if found := pattern.search(line):
                    return found.group(1)
            self.check()
            time.sleep(0.05)
        raise ChildError(f"The {self.name} was not ready after {seconds:g} s.", "Is the machine very busy?")

    def stop(self) -> None:
        """Ask the whole session to end, then end it."""
        for number, patience in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
            if not self._signal(number):
                break
            try:
                self._process.wait(patience)
            except subprocess.TimeoutExpired:
                continue
        self._signal(signal.SIGKILL)  # workers that outlived their parent
        self._reader.join(1.0)
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _signal(self, number: signal.Signals) -> bool:
        """Send a signal to the session; False when nobody is left in it."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def start_engine(model: str, flags: Sequence[str], runtime: Path) -> tuple[Child, str]:
    """Start `infradoc serve` on a free port; returns it with its URL. Its admin token lands in `runtime`.

    Raises ChildError with the engine's own sentence, for example when the model has not been fetched.
    """
    env = {"INFRADOC_RUNTIME_DIR": str(runtime), "INFRADOC_ADMIN_TOKEN": ""}
    child = Child("engine", ["serve", model, "--port", "0", *flags], env)
    try:
        return child, child.wait_for(READY, 120.0)
    except BaseException:
        child.stop()
        raise


def start_load(url: str, classes: Sequence[str], seed: int, seconds: float, client_out: Path) -> Child:
    """Start `infradoc bench` as a process of its own, as anybody's clients would be."""
    flags = [part for spec in classes for part in ("--class", spec)]
    argv = ["bench", url, *flags, "--seed", str(seed), "--duration", str(seconds), "--client-out", str(client_out)]
    return Child("load", argv)
