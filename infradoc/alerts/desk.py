"""What a person asks of the outbox: what waits, what is dead, send it again."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from infradoc.alerts.database import Database

_SHOWN = "seq, id, sink, lane, kind, created, state, attempts, error, finished"


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did: rows queued again, dead rows left out because a later state has been delivered, sinks on.

    waited: rows that waited all the time for the sinks that are switched on again.
    """

    queued: int
    outdated: int
    enabled: tuple[str, ...]
    waited: int = 0


def remembered(database: Database) -> dict[str, dict[str, Any]]:
    """Per sink: how it did so far. One row a sink, however many messages are kept. Raises StoreError."""
    keys = ("disabled", "disabled_at", "blocked_until", "failures", "open_until", "last_ok", "error")
    with database.reading() as link:
        found = link.execute(f"SELECT name, {', '.join(keys)} FROM sink").fetchall()
    return {row[0]: dict(zip(keys, row[1:], strict=True)) for row in found}


def sinks(database: Database) -> dict[str, dict[str, Any]]:
    """Per sink: what is remembered, and how many rows wait and are dead. Raises StoreError."""
    out = remembered(database)
    with database.reading() as link:
        counts = link.execute(
            "SELECT sink, sum(state = 'waiting'), sum(state = 'dead'), sum(state = 'delivered') "
            "FROM outbox GROUP BY sink"
        ).fetchall()
    for name, waiting, dead, delivered in counts:
        out.setdefault(name, {}).update(waiting=waiting, dead=dead, delivered=delivered)
    return out


def rows(database: Database, state: str, most: int = 50) -> list[dict[str, Any]]:
    """The newest rows in a state. Raises StoreError."""
    query = f"SELECT {_SHOWN} FROM outbox WHERE state = ? ORDER BY seq DESC LIMIT ?"
    with database.reading() as link:
        found = link.execute(query, (state, most)).fetchall()
    return [dict(zip((name.strip() for name in _SHOWN.split(",")), row, strict=True)) for row in found]


def replay(
    database: Database,
    now: float,
    give_up: float,
    *,
    row_id: str = "",
    since: float | None = None,
    sink: str = "",
    outdated: bool = False,
) -> Replayed:
    """Queue again: the row of that id whatever became of it, else the dead ones. Raises StoreError.

    Of dead rows, those whose lane has delivered something later stay dead unless `outdated`: sent now they would open
    an incident that has been told as over. Sinks that are named, or whose rows are queued, are switched on again; all
    of them where nothing is named.
    """
    with database.transaction() as link:
        found = _chosen(link, row_id, since, sink)
        picked = [row for row in found if row_id or outdated or not row[3]]
        for seq, name, lane, _ in picked:
            link.execute(
                "UPDATE outbox SET state = 'waiting', finished = NULL, deadline = ? WHERE seq = ?", (now + give_up, seq)
            )
            link.execute("INSERT OR REPLACE INTO lane VALUES (?, ?, ?)", (name, lane, now))
        names = {row[1] for row in picked} | ({sink} if sink else set())
        if not (row_id or sink or since is not None):
            names |= {row[0] for row in link.execute("SELECT name FROM sink WHERE disabled <> ''")}
        on = _switch_on(link, names)
        marks = ", ".join("?" * len(on))
        query = f"SELECT count(*) FROM outbox WHERE state = 'waiting' AND sink IN ({marks})"
        waiting = link.execute(query, on).fetchone()[0]
    queued = sum(row[1] in on for row in picked)
    return Replayed(len(picked), len(found) - len(picked), on, waiting - queued)


def _chosen(link: sqlite3.Connection, row_id: str, since: float | None, sink: str) -> list[tuple[int, str, str, bool]]:
    """Rows that a replay names: (seq, sink, lane, whether the lane has delivered something later)."""
    where: list[str] = ["state = 'dead'"]
    values: list[str | float] = []
    if row_id:
        where, values = ["id = ?", "state <> 'waiting'"], [row_id]
    if since is not None:
        where.append("created >= ?")
        values.append(since)
    if sink:
        where.append("sink = ?")
        values.append(sink)
    later = (
        "EXISTS (SELECT 1 FROM outbox n WHERE n.sink = outbox.sink AND n.lane = outbox.lane AND n.seq > outbox.seq "
        "AND n.state = 'delivered')"
    )
    return link.execute(f"SELECT seq, sink, lane, {later} FROM outbox WHERE {' AND '.join(where)}", values).fetchall()


def _switch_on(link: sqlite3.Connection, names: set[str]) -> tuple[str, ...]:
    """Let these sinks be tried at once; returns those that were switched off."""
    off = {row[0] for row in link.execute("SELECT name FROM sink WHERE disabled <> ''")}
    for name in names:
        link.execute(
            "UPDATE sink SET disabled = '', disabled_at = NULL, blocked_until = 0, failures = 0, open_until = 0 "
            "WHERE name = ?",
            (name,),
        )
    return tuple(sorted(off & names))
