"""One SQLite file and its connection: opened, brought up to date, written all or nothing, explained when it fails.

WAL: readers do not wait for the writer. A file that was removed while it was open is made again with all it held.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from infradoc.errors import InfradocError
from infradoc.sqlite.removed import Identity, carried_over, identity, made

BUSY_SECONDS = 3.0
_TABLE = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)")
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DISK = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


class FileError(InfradocError):
    """The file cannot be read or written now. `damaged`: it never will be, for what is in it makes no sense."""

    exit_code = 1
    damaged = False


@dataclass(frozen=True, slots=True)
class Kind:
    """What such a file is. `version` is that of `schema`; `elsewhere` and `meanwhile` complete the hints of errors.

    synchronous: FULL when a commit has to be on disk as it returns, NORMAL when a power cut may lose the last ones.
    """

    what: str
    schema: str
    version: int
    synchronous: Literal["FULL", "NORMAL"]
    error: type[FileError]
    elsewhere: str
    meanwhile: str

    @property
    def tables(self) -> tuple[str, ...]:
        """Their names, in the order of the schema."""
        return tuple(_TABLE.findall(self.schema))


class SqliteFile:
    """One connection. Not shared between threads at the same time; each thread of control opens its own."""

    def __init__(self, path: Path, kind: Kind, *, check: bool = False) -> None:
        """Open or make the file; `check` reads all of it. Raises the error of `kind`."""
        self.path, self.kind = path, kind
        self._identity = self._made()
        with self._explained("opened"):
            self._link = self._connected()
            try:
                self._prepare()
                if check:
                    self._check()
            except BaseException:
                self._link.close()
                raise

    def _made(self) -> Identity:
        try:
            return made(self.path)
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> FileError:
        message = f"The {self.kind.what} {self.path} cannot be used: {error.strerror}."
        return self.kind.error(message, self.kind.elsewhere)

    def _connected(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)

    def _follow_the_file(self) -> None:
        """Should somebody have removed it, all it held goes into a new one. Raises FileError, sqlite3.Error."""
        try:
            if identity(self.path) == self._identity:
                return
        except OSError as error:
            raise self._unusable(error) from error
        found = self._made()
        self._link = carried_over(self._link, self._connected())
        self._prepare()
        self._identity = found  # last: what fails is tried again

    def _prepare(self) -> None:
        kind = self.kind
        self._link.execute("PRAGMA journal_mode = WAL")
        self._link.execute(f"PRAGMA synchronous = {kind.synchronous}")
        found = self._link.execute("PRAGMA user_version").fetchone()[0]
        if found > kind.version:
            message = f"{self.path} was written by a newer infradoc (version {found}, known is {kind.version})."
            raise kind.error(message, f"Update infradoc. {kind.elsewhere}")
        if found < kind.version:
            self._link.executescript(f"BEGIN IMMEDIATE; {kind.schema} PRAGMA user_version = {kind.version}; COMMIT;")
        there = {name for (name,) in self._link.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for name in kind.tables:
            if name not in there:
                raise self._damaged(f"it has no table {name}")

    def _check(self) -> None:
        found = self._link.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise self._damaged(str(found).splitlines()[-1])

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing. Raises FileError; then nothing of it happened."""
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
        """For queries. Raises FileError."""
        with self._explained("read"):
            self._follow_the_file()
            yield self._link

    @contextmanager
    def rows_read(self) -> Iterator[None]:
        """Around what turns rows into objects: a row that is no such thing is a damaged file. Raises FileError."""
        try:
            yield
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._damaged(f"a row in it cannot be read: {error}") from error

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._sentence(error, what) from error

    def _sentence(self, error: sqlite3.Error, what: str) -> FileError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest of it says more than anybody asked
        start = f"The {self.kind.what} {self.path}"
        if code in _DAMAGED:
            return self._damaged(str(error))
        if code in _LOCKED:
            hint = "Does another program hold it open? It is tried again."
            return self.kind.error(f"{start} is locked by another process.", hint)
        if code in _DISK:
            message = f"{start} cannot be {what}: the disk under it is full or failing."
            return self.kind.error(message, f"Free the disk; {self.kind.meanwhile} until then.")
        return self.kind.error(f"{start} cannot be {what}: {error}.", "Check the rights of the file and of its folder.")

    def _damaged(self, why: str) -> FileError:
        made = self.kind.error(
            f"The {self.kind.what} {self.path} is damaged: {why}.",
            "`infradoc watch` sets it aside when it starts and makes a new one.",
        )
        made.damaged = True
        return made
