"""The SQLite file under incidents and outbox: one per state folder, safe against kill -9, full disks and locks.

WAL with synchronous=FULL: a commit is on disk when it returns, and readers (`alerts list`) do not wait for the writer.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from infradoc.alerts.removed import Identity, carried_over, identity, made
from infradoc.errors import InfradocError

FILE_NAME = "alerts.sqlite"
LOCK_NAME = "alerts.lock"
STATE_DIR_ENV = "INFRADOC_STATE_DIR"
VERSION = 1
BUSY_SECONDS = 3.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS incident (fingerprint TEXT PRIMARY KEY, data TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS grouped (key TEXT PRIMARY KEY, last REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS silence (
  id TEXT PRIMARY KEY, matchers TEXT NOT NULL, starts REAL NOT NULL, ends REAL NOT NULL,
  author TEXT NOT NULL, comment TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outbox (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, sink TEXT NOT NULL, lane TEXT NOT NULL, kind TEXT NOT NULL,
  body TEXT NOT NULL, created REAL NOT NULL, deadline REAL NOT NULL, state TEXT NOT NULL DEFAULT 'waiting',
  attempts INTEGER NOT NULL DEFAULT 0, error TEXT NOT NULL DEFAULT '', finished REAL, UNIQUE (sink, id));
CREATE INDEX IF NOT EXISTS outbox_waiting ON outbox (sink, lane, seq) WHERE state = 'waiting';
CREATE INDEX IF NOT EXISTS outbox_finished ON outbox (state, finished) WHERE state <> 'waiting';
CREATE TABLE IF NOT EXISTS lane (
  sink TEXT NOT NULL, lane TEXT NOT NULL, due REAL NOT NULL, PRIMARY KEY (sink, lane)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS lane_due ON lane (sink, due);
CREATE TABLE IF NOT EXISTS sink (
  name TEXT PRIMARY KEY, disabled TEXT NOT NULL DEFAULT '', disabled_at REAL, blocked_until REAL NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0, open_until REAL NOT NULL DEFAULT 0, buckets TEXT NOT NULL DEFAULT '{}',
  last_ok REAL, error TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
"""


class StoreError(InfradocError):
    """The alerts' database cannot be read or written now; what was to be stored stays in memory and is tried again."""

    exit_code = 1


class BusyError(InfradocError):
    """Another process already sends the alerts of this state folder."""


def state_folder(configured: str = "") -> Path:
    """Where the file lies: `[alerts] state`, INFRADOC_STATE_DIR, else the user's state folder. Not created here."""
    override = configured or os.environ.get(STATE_DIR_ENV, "")
    return Path(override) if override else Path(platformdirs.user_state_path("infradoc"))


class Database:
    """One connection. Not shared between threads at the same time; each thread of control opens its own."""

    def __init__(self, folder: Path) -> None:
        """Open or make the file. Raises StoreError."""
        self.path = folder / FILE_NAME
        self._file = self._made()
        with self._explained("opened"):
            self._link = self._connected()
            self._prepare()

    def _made(self) -> Identity:
        try:
            return made(self.path)
        except OSError as error:
            raise _unusable(self.path.parent, error) from error

    def _connected(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)

    def _follow_the_file(self) -> None:
        """Should somebody have removed it, all it held goes into a new one. Raises StoreError, sqlite3.Error."""
        try:
            if identity(self.path) == self._file:
                return
        except OSError as error:
            raise _unusable(self.path.parent, error) from error
        found = self._made()
        self._link = carried_over(self._link, self._connected())
        self._prepare()
        self._file = found  # last: what fails is tried again

    def _prepare(self) -> None:
        self._link.execute("PRAGMA journal_mode = WAL")
        self._link.execute("PRAGMA synchronous = FULL")
        found = self._link.execute("PRAGMA user_version").fetchone()[0]
        if found > VERSION:
            message = f"{self.path} was written by a newer infradoc (version {found} of the file, known is {VERSION})."
            raise StoreError(message, "Update infradoc, or give this one another state folder.")
        if found < VERSION:
            self._link.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, and on disk when it ends. Raises StoreError; then nothing of it happened."""
        with self._explained("written"):
            self._follow_the_file()
            self._link.execute("BEGIN IMMEDIATE")
            try:
                yield self._link
                self._link.execute("COMMIT")
            except BaseException:
                if self._link.in_transaction:
                    self._link.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """For queries. Raises StoreError."""
        with self._explained("read"):
            self._follow_the_file()
            yield self._link

    @contextmanager
    def rows_read(self) -> Iterator[None]:
        """Around what turns rows into objects: a row that is no such thing is a damaged file. Raises StoreError."""
        try:
            yield
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            hint = "Move the file away; a new one is made."
            raise StoreError(f"{self.path} is damaged: a row in it cannot be read: {error}.", hint) from error

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._sentence(error, what) from error

    def _sentence(self, error: sqlite3.Error, what: str) -> StoreError:
        text = str(error)
        if "locked" in text or "busy" in text:
            hint = "Does another program hold it open? It is tried again."
            return StoreError(f"The alerts' database {self.path} is locked by another process.", hint)
        if "full" in text or "disk I/O" in text:
            message = f"The alerts' database {self.path} cannot be {what}: the disk under it is full or failing."
            return StoreError(message, "Free the disk; alerts wait in memory until then.")
        if "not a database" in text or "malformed" in text:
            hint = "Move the file away; a new one is made."
            return StoreError(f"{self.path} is damaged or no database: {text}.", hint)
        return StoreError(f"The alerts' database {self.path} cannot be {what}: {text}.", "Check the file's rights.")


def _unusable(folder: Path, error: OSError) -> StoreError:
    hint = "Set [alerts] state, or INFRADOC_STATE_DIR, to a folder that may be written."
    return StoreError(f"The alerts' folder {folder} cannot be used: {error.strerror}.", hint)


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
