"""A log that a command prints (journalctl, docker, kubectl): kept running, and started again if it ends."""

from __future__ import annotations

import errno
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

from infradoc.errors import visible
from infradoc.sources.log import LogSource
from infradoc.sources.secrets import without_secrets
from infradoc.sources.tail import MAX_LINE_BYTES

# What waits between two looks: a server that logs faster than this is not read whole, and the memory stays bounded.
MOST_LINES = 50_000
MOST_BYTES = 32 << 20  # a line may have megabytes, and 50,000 of those are more than the machine has
_FIRST_PAUSE = 1.0  # seconds before the command is started again; doubled each time it ends at once
_LONGEST_PAUSE = 60.0
_STEADY_SECONDS = 10.0  # a command that ran this long had begun well
_END_SECONDS = 2.0
_REST_SECONDS = 0.2  # for the last lines of a command that has ended
_SHOWN = 200  # characters of its last line
# A watch that is killed ends nothing itself, and a silent command would run on for good: a child of the shell, in the
# command's group, waits for the end of a pipe that only the watch holds open. The command takes the shell's place.
_GUARDED = 'exec 3<&0; (read _ <&3; kill -KILL 0) >/dev/null 2>&1 & exec "$@" 3<&- </dev/null'


class CommandTail:
    """Lines of a running command. A thread reads them, so that a look never waits.

    `trouble` is why it does not run, in words that stay the same from one start to the next; "" once it has run
    steadily. That it prints is no sign: what cannot start prints why.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.command = tuple(command)
        self.dropped_lines = 0
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._last = b""
        self._code: int | None = None  # of the end that `trouble` tells of
        self.trouble = ""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._alive: int | None = None  # our end of the pipe
        self._reader: threading.Thread | None = None
        self._started = 0.0
        self._again = 0.0
        self._pause = _FIRST_PAUSE
        self._closed = False

    def lines(self) -> list[bytes]:
        """Lines that came since the last call; starts the command when it is due."""
        self._keep_running()
        with self._lock:
            found = list(self._lines)
            self._lines.clear()
            self._bytes = 0
        if self._process is not None and time.monotonic() - self._started >= _STEADY_SECONDS:
            self.trouble, self._code = "", None
        return found

    def _keep_running(self) -> None:
        if self._closed:
            return
        if self._process is not None and _has_ended(self._process) and not self._reading_on():
            _end_group(self._process)
            code, ran = self._process.wait(), time.monotonic() - self._started
            self._process = None
            self._let_go()
            self._pause = _FIRST_PAUSE if ran >= _STEADY_SECONDS else min(_LONGEST_PAUSE, 2 * self._pause)
            self._again = time.monotonic() + self._pause
            self._tell_end(code, ran)
        if self._process is None and time.monotonic() >= self._again:
            try:
                self._start()
            except OSError as error:
                self.trouble, self._code = f"{error.strerror}.", None

    def _tell_end(self, code: int, ran: float) -> None:
        """The same end once more keeps its words: its last line may hold a time, and that would be news for ever."""
        if self.trouble and code == self._code:
            return
        how = "at once " if ran < _STEADY_SECONDS else ""
        with self._lock:
            last = self._last.decode(errors="replace").strip()
        self._code = code
        self.trouble = f"it ended {how}with exit code {code}."
        if last:
            self.trouble += f" Its last line: {visible(without_secrets(last))[:_SHOWN]}"

    def _start(self) -> None:
        """Raises OSError, and tries no sooner again than after the pause."""
        self._started, self._last = time.monotonic(), b""
        self._again = self._started + self._pause  # if the start itself fails
        if shutil.which(self.command[0]) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.command[0])
        shell = shutil.which("sh")  # an image without a shell has no guard
        theirs, self._alive = os.pipe()  # not inherited by any child but through stdin
        try:
            self._process = subprocess.Popen(
                (shell, "-c", _GUARDED, "log_command", *self.command) if shell else self.command,
                stdin=theirs,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the watch, which then ends the command and all that it started
            )
        except OSError:
            self._let_go()
            raise
        finally:
            os.close(theirs)
        self._reader = threading.Thread(target=self._read, args=(self._process,), name="log-command", daemon=True)
        self._reader.start()

    def _let_go(self) -> None:
        """Close our end of the pipe; what is left of the group ends with it."""
        if self._alive is not None:
            os.close(self._alive)
            self._alive = None

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
            self._keep([rest] if rest else [])

    def _keep(self, lines: list[bytes]) -> None:
        with self._lock:
            self._last = next((line for line in reversed(lines) if line.strip()), self._last)
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
        self._let_go()


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

    def _trouble(self) -> str | None:
        trouble = self._command.trouble
        return f"The log command {self._command.command[0]} does not run: {trouble}" if trouble else None

    def close(self) -> None:
        """End the command."""
        self._command.close()
