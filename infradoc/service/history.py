"""What was found when, and each minute's vitals, in one SQLite file with an end date for every row."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infradoc.plurals import counted
from infradoc.sqlite.file import FileError, Kind, SqliteFile
from infradoc.sqlite.mend import mend

HISTORY_NAME = "history.sqlite"  # in the state folder
MINUTE = 60.0
_PRUNE_SECONDS = 600.0  # how often old rows are looked for
MOST_WAITING = 10_000  # minutes of vitals that wait in memory for a disk that is full
_SCHEMA = """
CREATE TABLE finding (target TEXT, id TEXT, severity TEXT, title TEXT, confidence REAL, began REAL, ended REAL,
  detail TEXT, PRIMARY KEY (target, id, began)) WITHOUT ROWID;
CREATE INDEX finding_ended ON finding (ended);
CREATE TABLE vital (target TEXT, name TEXT, minute REAL, low REAL, mean REAL, high REAL, n INTEGER,
  PRIMARY KEY (target, name, minute)) WITHOUT ROWID;
CREATE INDEX vital_minute ON vital (minute);
CREATE TABLE change (target TEXT, id TEXT, time REAL, what TEXT, PRIMARY KEY (target, id)) WITHOUT ROWID;
"""


class HistoryError(FileError):
    """The history's file cannot be used; the watch itself goes on."""


KIND = Kind(
    what="history",
    schema=_SCHEMA,
    version=1,
    synchronous="NORMAL",  # a power cut may lose the last minute, never the file
    error=HistoryError,
    elsewhere="Set [watch] history to a file that may be written.",
    meanwhile="the watch goes on without it",
)


@dataclass(slots=True)
class _Minute:
    """One vital over the running minute."""

    low: float
    high: float
    total: float
    n: int


class History:
    """One file, used from the watchers' threads one at a time. What cannot be written now is written later or lost
    with the process: a full disk must not end a watch."""

    def __init__(self, path: Path, retention: float, mends: bool = False) -> None:
        """Open or make the file; with `mends` a damaged one is set aside, now and later. Raises HistoryError."""
        self.path, self.retention = path, retention
        self._mends = mends
        self._guard = threading.RLock()
        self._open: dict[tuple[str, str], float] = {}
        self._minutes: dict[tuple[str, str, float], _Minute] = {}
        self._pruned = 0.0
        self.trouble = ""  # of the last write: a look that has nothing to write proves nothing
        self.set_aside: list[str] = []  # a sentence for each file that was damaged
        try:
            self._file = SqliteFile(path, KIND)
            self._open = self._stored_open()
        except HistoryError as error:
            if not (error.damaged and mends):
                raise
            self._set_aside(error)
            self._file = SqliteFile(path, KIND)
            self._open = self._stored_open()

    def _stored_open(self) -> dict[tuple[str, str], float]:
        with self._file.reading() as link:
            rows = link.execute("SELECT target, id, began FROM finding WHERE ended IS NULL").fetchall()
        return {(target, name): began for target, name, began in rows}

    def _set_aside(self, error: HistoryError) -> None:
        """Let a new file with what could be read of this one take its place. Raises HistoryError."""
        done = mend(self.path, KIND, lambda table, row: True, time.time())
        kept = [counted(done.saved[table], table) for table in ("finding", "change")]
        kept.append(counted(done.saved["vital"], "minute of vitals", "minutes of vitals"))
        self.set_aside.append(done.sentence(error.message, kept))

    # --- in ---------------------------------------------------------------------------------------------------------

    def note(self, now: float, target: str, findings: Mapping[str, Mapping[str, Any]], known: bool = True) -> None:
        """The findings that hold at `target` now, by id. `known` False: what is absent may still hold.

        Raises HistoryError; then the same call at the next look makes up for it.
        """
        with self._guard:
            fresh = [name for name in findings if (target, name) not in self._open]
            over = [] if not known else [n for t, n in self._open if t == target and n not in findings]
            if fresh or over:
                with self._transaction() as link:
                    for name in fresh:
                        link.execute(
                            "INSERT OR REPLACE INTO finding VALUES (?, ?, ?, ?, ?, ?, NULL, ?)",
                            (target, name, *_columns(findings[name]), now, _detail(findings[name])),
                        )
                    for name in over:
                        began = self._open[target, name]
                        link.execute(
                            "UPDATE finding SET ended = ? WHERE target = ? AND id = ? AND began = ?",
                            (now, target, name, began),
                        )
                self._open.update({(target, name): now for name in fresh})
                for name in over:
                    del self._open[target, name]

    def end_others(self, now: float, targets: Collection[str]) -> None:
        """End what holds at targets that are watched no more: nobody would ever see it end. Raises HistoryError."""
        for target in {target for target, _ in self._open} - set(targets):
            self.note(now, target, {})

    def measure(self, now: float, target: str, vitals: Mapping[str, float | None]) -> None:
        """Take in one look's vitals; a minute is written when the next one begins. Raises HistoryError."""
        minute = now // MINUTE * MINUTE
        with self._guard:
            for name, value in vitals.items():
                if value is None:
                    continue
                seen = self._minutes.get((target, name, minute))
                if seen is None:
                    self._minutes[target, name, minute] = _Minute(value, value, value, 1)
                    continue
                seen.low, seen.high = min(seen.low, value), max(seen.high, value)
                seen.total, seen.n = seen.total + value, seen.n + 1
            if any(key[2] < minute for key in self._minutes):
                self._flush(minute)
            if abs(now - self._pruned) > _PRUNE_SECONDS:  # below zero where the clock was set back since
                self._prune(now)

    def change(self, target: str, change_id: str, time: float, what: str) -> bool:
        """A change that was applied; True when it was not known before. Raises HistoryError."""
        with self._guard, self._transaction() as link:
            done = link.execute("INSERT OR IGNORE INTO change VALUES (?, ?, ?, ?)", (target, change_id, time, what))
            return done.rowcount == 1

    def _flush(self, before: float) -> None:
        whole = sorted((key for key in self._minutes if key[2] < before), key=lambda key: key[2])
        rows = [(*key, m.low, m.total / m.n, m.high, m.n) for key in whole if (m := self._minutes[key])]
        try:
            with self._transaction() as link:
                link.executemany("INSERT OR REPLACE INTO vital VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        except HistoryError:
            for key in whole[:-MOST_WAITING]:
                del self._minutes[key]
            raise
        for key in whole:
            del self._minutes[key]

    def _prune(self, now: float) -> None:
        self._pruned = now
        end = now - self.retention
        with self._transaction() as link:
            link.execute("DELETE FROM finding WHERE ended < ?", (end,))
            link.execute("DELETE FROM vital WHERE minute < ?", (end,))
            link.execute("DELETE FROM change WHERE time < ?", (end,))

    # --- out --------------------------------------------------------------------------------------------------------

    def findings(self, since: float, target: str = "") -> list[dict[str, Any]]:
        """Findings that held at some time after `since` (Unix seconds), newest first. Raises HistoryError."""
        query = (
            "SELECT target, id, severity, title, confidence, began, ended FROM finding"
            " WHERE (ended IS NULL OR ended >= ?1) AND (?2 = '' OR target = ?2) ORDER BY began DESC LIMIT 10000"
        )
        return self._rows(query, [since, target])

    def vitals(self, since: float, target: str, name: str) -> list[dict[str, Any]]:
        """One vital by the minute: low, mean, high and the number of looks. Raises HistoryError."""
        query = (
            "SELECT minute, low, mean, high, n FROM vital WHERE target = ? AND name = ? AND minute >= ? ORDER BY minute"
        )
        return self._rows(query, [target, name, since])

    def changes(self, since: float, target: str = "") -> list[dict[str, Any]]:
        """Applied changes, newest first. Raises HistoryError."""
        query = (
            "SELECT target, id, time, what FROM change"
            " WHERE time >= ?1 AND (?2 = '' OR target = ?2) ORDER BY time DESC LIMIT 10000"
        )
        return self._rows(query, [since, target])

    def _rows(self, query: str, values: list[Any]) -> list[dict[str, Any]]:
        with self._guard, self._told(), self._file.reading() as link:
            found = link.execute(query, values)
            names = [column[0] for column in found.description]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def close(self) -> None:
        """Write what the running minute has, and close. A disk that fails now is not waited for."""
        with self._guard:
            with suppress(HistoryError):  # told at the last look already; there is nobody left to tell
                self._flush(float("inf"))
            self._file.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._told(), self._file.transaction() as link:
            yield link
        self.trouble = ""

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Keep what went wrong as the trouble; damage is mended, and the next look tries again."""
        try:
            yield
        except HistoryError as error:
            self.trouble = str(error)
            if error.damaged and self._mends:
                self._set_aside(error)
                self._open = self._stored_open()  # of the new file, which the connection follows
            raise


def _columns(finding: Mapping[str, Any]) -> tuple[str, str, float]:
    return str(finding["severity"]), str(finding["title"]), float(finding["confidence"])


def _detail(finding: Mapping[str, Any]) -> str:
    """Cause, evidence and the first action: what somebody wants to know of a finding that is over."""
    kept = {key: finding.get(key) for key in ("cause", "role", "explains")}
    kept["evidence"] = [entry.get("text") for entry in finding.get("evidence", [])]
    kept["action"] = next((action.get("flag") for action in finding.get("actions", [])), None)
    return json.dumps(kept, ensure_ascii=False)
