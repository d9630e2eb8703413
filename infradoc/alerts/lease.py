"""The right to send the alerts of a state folder: one process has it."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from infradoc.alerts.database import ELSEWHERE, StoreError
from infradoc.errors import InfradocError
from infradoc.sqlite.removed import identity

LOCK_NAME = "alerts.lock"


class BusyError(InfradocError):
    """Another process already sends the alerts of this state folder."""


def is_held(folder: Path) -> bool:
    """Whether some process sends the alerts of `folder` now."""
    try:
        handle = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)  # and the lock with it
    return False


class Lease:
    """The right to send the alerts of a state folder: a file lock, so it ends with its holder however that dies."""

    def __init__(self, folder: Path) -> None:
        """Take it. Raises BusyError at once when another process has it."""
        self._path = folder / LOCK_NAME
        self._take()

    def hold(self) -> None:
        """Take it once more if its file was removed: a lock without a name keeps nobody out.

        Raises BusyError when another process was quicker, StoreError.
        """
        if self._handle < 0:
            self._take()
            return
        mine = os.fstat(self._handle)
        try:
            if identity(self._path) == (mine.st_dev, mine.st_ino):
                return
        except OSError as error:
            raise _unusable(self._path.parent, error) from error
        self.release()
        self._take()

    def _take(self) -> None:
        folder = self._path.parent
        self._handle = -1
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unusable(folder, error) from error
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._handle, 100, 0).decode(errors="replace").strip() or "another process"
            os.close(self._handle)
            self._handle = -1
            message = f"The alerts of {folder} are already sent by {holder}; this infradoc does not send them."
            raise BusyError(message, "Stop the other, or give this one a state folder of its own.") from error
        self._note()

    def _note(self) -> None:
        """Who holds it, for the other's sentence; a full disk is no reason to go without the lock."""
        line = f"process {os.getpid()} (since {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC)"
        try:
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, line.encode(), 0)
        except OSError:
            return

    def release(self) -> None:
        """Give it back; once is enough, and twice does no harm."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _unusable(folder: Path, error: OSError) -> StoreError:
    return StoreError(f"The alerts' folder {folder} cannot be used: {error.strerror}.", ELSEWHERE)
