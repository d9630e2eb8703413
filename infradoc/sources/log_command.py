"""A log that a command prints (journalctl, docker, kubectl): kept running, and started again if it ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from infradoc.sources.log import LogSource
from infradoc.sources.tail import MAX_LINE_BYTES

# What waits between two looks: a server that logs faster than this is not read whole, and the memory stays bounded.
MOST_LINES = 50_000
_FIRST_PAUSE = 1.0  # seconds before the command is started again; doubled each time it ends at once
_LONGEST_PAUSE = 60.0
_STEADY_SECONDS = 10.0  # a command that ran this long had begun well
_END_SECONDS = 2.0


class CommandTail:
    """Lines of a running command. A thread reads them, so that a look never waits."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = tuple(command)
        self.dropped_lines = 0
        self._lines: deque[bytes] = deque()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._started = 0.0
        self._again = 0.0
        self._pause = _FIRST_PAUSE
        self._closed = False

    def lines(self) -> list[bytes]:
        """Lines that came since the last call. Raises OSError with a reason when the command does not run."""
        self._keep_running()
        with self._lock:
            found = list(self._lines)
            self._lines.clear()
        if not found and self._process is None:
            raise OSError(0, f"it ended and is started again in {max(0.0, self._again - time.monotonic()):.0f} s")
        return found

    def _keep_running(self) -> None:
        if self._closed:
            return
        if self._process is not None and self._process.poll() is not None and not self._reading():
            code, ran = self._process.returncode, time.monotonic() - self._started
            self._process = None
            self._pause = _FIRST_PAUSE if ran >= _STEADY_SECONDS else min(_LONGEST_PAUSE, 2 * self._pause)
            self._again = time.monotonic() + self._pause
            if code and ran < _STEADY_SECONDS and not self._lines:
                raise OSError(0, f"it ended with exit code {code} after {ran:.1f} s")
        if self._process is None and time.monotonic() >= self._again:
            self._start()

    def _start(self) -> None:
        self._started = time.monotonic()
        self._again = self._started + self._pause  # if the start itself fails
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the watch, which then ends the command itself
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), name="log-command", daemon=True)
        self._reader.start()

    def _reading(self) -> bool:
        return self._reader is not None and self._reader.is_alive()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        rest = b""
        while chunk := os.read(process.stdout.fileno(), 1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > MAX_LINE_BYTES:
                rest = b""
                self.dropped_lines += 1
            with self._lock:
                self._lines.extend(lines)
                while len(self._lines) > MOST_LINES:
                    self._lines.popleft()
                    self.dropped_lines += 1
        process.stdout.close()

    def close(self) -> None:
        """End the command."""
        self._closed = True
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class CommandLogSource(LogSource):
    """As `LogSource`, for what a command prints."""

    def __init__(self, command: Sequence[str], system: str | None = None) -> None:
        super().__init__(Path(command[0]), system)
        self._command = CommandTail(command)

    def is_supported(self) -> bool:
        """Whether the program is there."""
        return shutil.which(self._command.command[0]) is not None

    def why_not(self) -> str | None:
        """A phrase for the report when the program is missing."""
        return None if self.is_supported() else f"there is no program {self._command.command[0]} for log_command"

    def _lines(self) -> list[bytes]:
        return self._command.lines()

    def _fault(self, error: OSError) -> str:
        return f"The log command {self._command.command[0]} does not run: {error.strerror}."

    def close(self) -> None:
        """End the command."""
        self._command.close()
