"""A damaged database of alerts: set aside, and what could be read of it goes on in a new one.

Only the holder of the lease does this; others are told, and leave the file alone.
"""

from __future__ import annotations

import json
from pathlib import Path

from infradoc.alerts.database import FILE_NAME, KIND, Database, StoreError
from infradoc.alerts.incident import Incident
from infradoc.alerts.matchers import parse_matcher
from infradoc.plurals import counted
from infradoc.sqlite.mend import mend
from infradoc.sqlite.salvage import Row


def sound_database(folder: Path, now: float) -> tuple[Database, str]:
    """The file, and a sentence when it was damaged and had to be set aside. Raises StoreError."""
    try:
        return _read_whole(folder), ""
    except StoreError as error:
        said = _mended(folder, error, now)
    return Database(folder), said


def mended(folder: Path, now: float) -> str:
    """The same for a file in use: its connections follow to the new one. "" when it is sound. Raises StoreError."""
    try:
        _read_whole(folder).close()
    except StoreError as error:
        return _mended(folder, error, now)
    return ""


def _read_whole(folder: Path) -> Database:
    database = Database(folder, check=True)
    try:
        for table in ("incident", "silence", "sink"):
            _read_all(database, table)
    except StoreError:
        database.close()
        raise
    return database


def _mended(folder: Path, error: StoreError, now: float) -> str:
    if not error.damaged:
        raise error
    done = mend(folder / FILE_NAME, KIND, _is_sound_row, now)
    database = Database(folder)
    with database.transaction() as link:
        link.execute("DELETE FROM lane")
        link.execute("INSERT INTO lane SELECT DISTINCT sink, lane, ? FROM outbox WHERE state = 'waiting'", (now,))
        states = dict(link.execute("SELECT state, count(*) FROM outbox GROUP BY state").fetchall())
    database.close()
    kept = [
        counted(states.get("waiting", 0), "message that waits", "messages that wait"),
        counted(states.get("dead", 0), "message that was given up", "messages that were given up"),
        counted(done.saved["incident"], "incident"),
        counted(done.saved["silence"], "silence"),
    ]
    return done.sentence(error.message, kept)


def _read_all(database: Database, table: str) -> None:
    with database.reading() as link, database.rows_read():
        for (text,) in link.execute(f"SELECT {_TEXTS[table]} FROM {table}").fetchall():
            _parsed(table, text)


def _parsed(table: str, text: str) -> None:
    """Raises ValueError, TypeError, KeyError or AttributeError for what no infradoc has written."""
    found = json.loads(text)
    if table == "incident":
        Incident.from_dict(found)
    elif table == "silence":
        _ = [parse_matcher(one) for one in found]
    elif not isinstance(found, dict):
        raise TypeError(table)


_TEXTS = {"incident": "data", "silence": "matchers", "outbox": "body", "sink": "buckets"}


def _is_sound_row(table: str, row: Row) -> bool:
    try:
        if table in _TEXTS:
            _parsed(table, row[_TEXTS[table]])
    except (ValueError, TypeError, KeyError, AttributeError):
        return False
    return table != "outbox" or row["state"] in ("waiting", "dead", "delivered")
