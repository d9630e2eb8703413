"""SQLite files that were removed while they were open (a state folder tidied away): what they hold is saved.

SQLite goes on writing into the file without a name, and with the process all of it would be gone.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

Identity = tuple[int, int]
# Closing one would remove the write-ahead log by its name, which is the new file's by now.
_ABANDONED: list[sqlite3.Connection] = []


def identity(path: Path) -> Identity | None:
    """Which file has this name; None when there is none. Raises OSError."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def made(path: Path) -> Identity:
    """The file, made when it is missing, for this user only. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch(mode=0o600, exist_ok=True)
    found = identity(path)
    assert found is not None
    return found


def carried_over(old: sqlite3.Connection, new: sqlite3.Connection) -> sqlite3.Connection:
    """`new` with all of `old`, unless somebody has put another database there already. Raises sqlite3.Error."""
    if new.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
        old.backup(new)
    _ABANDONED.append(old)
    return new
