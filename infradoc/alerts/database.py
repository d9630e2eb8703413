"""The SQLite file under incidents and outbox: one per state folder, safe against kill -9, full disks and locks."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import platformdirs

from infradoc.sqlite.file import FileError, Kind, SqliteFile

FILE_NAME = "alerts.sqlite"
STATE_DIR_ENV = "INFRADOC_STATE_DIR"
ELSEWHERE = "Set [alerts] state, or INFRADOC_STATE_DIR, to a folder that may be written."

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


class StoreError(FileError):
    """The alerts' database cannot be read or written now; what was to be stored stays in memory and is tried again."""


KIND = Kind(
    what="alerts' database",
    schema=_SCHEMA,
    version=1,
    synchronous="FULL",
    error=StoreError,
    elsewhere=ELSEWHERE,
    meanwhile="alerts wait in memory",
)


def state_folder(configured: str = "") -> Path:
    """Where the file lies: `[alerts] state`, INFRADOC_STATE_DIR, else the user's state folder. Not created here."""
    override = configured or os.environ.get(STATE_DIR_ENV, "")
    return Path(override) if override else Path(platformdirs.user_state_path("infradoc"))


class Database(SqliteFile):
    """A connection to the file of a state folder."""

    def __init__(self, folder: Path, *, check: bool = False, meanwhile: str = "") -> None:
        """Open or make the file; `check` reads all of it, `meanwhile` replaces that of `KIND`. Raises StoreError."""
        super().__init__(folder / FILE_NAME, replace(KIND, meanwhile=meanwhile or KIND.meanwhile), check=check)
