"""A log that a command prints (journalctl, docker, kubectl): kept running, and started again if it ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from infradoc.sources.log import LogSource
from infradoc.sources.tail import MAX_LINE_BYTES

# What waits between two looks: a server that logs faster than this is not read whole, and the memory stays bounded.
MOST_LINES = 50_000
MOST_BYTES = 32 << 20  # a line may have megabytes, and 50,000 of those are more than the machine has
_FIRST_PAUSE = 1.0  # seconds before the command is started again; doubled each time it ends at once
_LONGEST_PAUSE = 60.0
_STEADY_SECONDS = 10.0  # a command that ran this long had begun well
_END_SECONDS = 2.0
_REST_SECONDS = 0.2  # for the last lines of a command that has ended


class CommandTail:
    """Lines of a running command. A thread reads them, so that a look never waits."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = tuple(command)
        self.dropped_lines = 0
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._trouble = ""  # why it ended, until it has run steadily or printed something
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
            self._bytes = 0
        if found or (self._process is not None and time.monotonic() - self._started >= _STEADY_SECONDS):
            self._trouble = ""
        if self._trouble:
            left = max(0.0, self._again - time.monotonic())
            raise OSError(
                0, self._trouble + (f" and is started again in {left:.0f} s" if self._process is None else "")
            )
        return found

    def _keep_running(self) -> None:
        if self._closed:
            return
        if self._process is not None and _has_ended(self._process) and not self._reading_on():
            _end_group(self._process)
            code, ran = self._process.wait(), time.monotonic() - self._started
            self._process = None
            self._pause = _FIRST_PAUSE if ran >= _STEADY_SECONDS else min(_LONGEST_PAUSE, 2 * self._pause)
            self._again = time.monotonic() + self._pause
            self._trouble = f"it ended with exit code {code} after {ran:.1f} s"
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
            start_new_session=True,  # Ctrl-C is for the watch, which then ends the command and all that it started
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), name="log-command", daemon=True)
        self._reader.start()

    def _reading_on(self) -> bool:
        """Whether what the command printed last is still being read; children that it left behind end nothing."""
        if self._reader is not None and self._reader.is_alive():
            self._reader.join(_REST_SECONDS)
        return self._reader is not None and self._reader.is_alive() and bool(self._lines)

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        rest = b""
        with process.stdout as stream:
            while chunk := os.read(stream.fileno(), 1 << 16):
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > MAX_LINE_BYTES:
                    rest = b""
                    self.dropped_lines += 1
                self._keep(lines)

    def _keep(self, lines: list[bytes]) -> None:
        with self._lock:
            self._lines.extend(lines)
            self._bytes += sum(map(len, lines))
            while len(self._lines) > MOST_LINES or self._bytes > MOST_BYTES:
                self._bytes -= len(self._lines.popleft())
                self.dropped_lines += 1

    def close(self) -> None:
        """End the command and what it started."""
        self._closed = True
        process, self._process = self._process, None
        if process is None:
            return
        _signal_group(process, signal.SIGTERM)
        end = time.monotonic() + _END_SECONDS
        while not _has_ended(process) and time.monotonic() < end:
            time.sleep(0.02)
        _end_group(process)
        process.wait()


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it ended, without taking its exit code: until then its number, which is its group's, is nobody else's."""
    if process.returncode is not None:
        return True
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End at once whatever is left of the command: a shell may have ended before the pipeline that it started."""
    _signal_group(process, signal.SIGKILL)


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):  # nobody left; or it became another user (sudo)
            os.killpg(process.pid, number)


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
