"""The queue of messages per sink: at least once, in order per lane (an incident or a group), across kill -9.

A lane's head is what may be sent; those behind it wait until it is delivered or dead. `lane.due` is when: so a sink
that retries one message for hours still takes the others, and finding the next one costs the same at 10 and at 100,000.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from infradoc.alerts.backoff import Limit, take
from infradoc.alerts.database import Database

HEARTBEAT = "heartbeat"  # says once more what is known: not queued where something waits already, and never kept


@dataclass(frozen=True, slots=True)
class Row:
    """One message for one sink. `id` stays the same over all attempts."""

    seq: int
    id: str
    sink: str
    lane: str
    kind: str
    body: str
    created: float
    deadline: float
    attempts: int


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one attempt. `due`: when to try again, for "retry". `block`: keep off the whole sink until then.

    trips: this failure is one of the receiver (down, overloaded), and counts for its circuit breaker.
    """

    row: Row
    fate: Literal["delivered", "retry", "dead", "disable"]
    now: float
    error: str = ""
    due: float = 0.0
    block: float = 0.0
    trips: bool = False
    open_until: float = 0.0


@dataclass(frozen=True, slots=True)
class SinkState:
    """What is remembered about a sink across restarts."""

    disabled: str = ""
    blocked_until: float = 0.0
    failures: int = 0
    open_until: float = 0.0


def put(
    link: sqlite3.Connection, message: dict[str, Any], sink: str, lane: str, deadline: float, kind: str = ""
) -> bool:
    """Queue a message; whether it was new. Within a transaction."""
    kind = kind or str(message["kind"])
    if kind == HEARTBEAT:
        waiting = "SELECT 1 FROM outbox WHERE sink = ? AND lane = ? AND state = 'waiting' LIMIT 1"
        if link.execute(waiting, (sink, lane)).fetchone():
            return False
    now = float(message["created"])
    done = link.execute(
        "INSERT OR IGNORE INTO outbox (id, sink, lane, kind, body, created, deadline) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (message["id"], sink, lane, kind, json.dumps(message, ensure_ascii=False), now, deadline),
    )
    if done.rowcount > 0:
        link.execute("INSERT OR IGNORE INTO lane VALUES (?, ?, ?)", (sink, lane, now))
    return done.rowcount > 0


class Outbox:
    """The deliverer's view of the queue."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def heads(self, sink: str, now: float, most: int, busy: Collection[str]) -> list[Row]:
        """At most `most` messages that may be sent at `now`, of lanes that are not `busy`. Raises StoreError."""
        with self.database.reading() as link:
            lanes = link.execute(
                "SELECT lane FROM lane WHERE sink = ? AND due <= ? ORDER BY due LIMIT ?", (sink, now, most + len(busy))
            ).fetchall()
            rows = [_head(link, sink, lane) for (lane,) in lanes if lane not in busy]
        return [row for row in rows if row is not None][:most]

    def take_tokens(self, sink: str, limits: tuple[Limit, ...], now: float, most: int) -> tuple[int, float]:
        """Take the right to send up to `most` requests: how many, and the seconds until there is another.

        Stored before the requests go out: a sender that is killed and started again keeps to the limit too. Raises
        StoreError.
        """
        if not limits or not most:
            return most, 0.0
        with self.database.rows_read(), self.database.transaction() as link:
            _ensure(link, sink)
            raw = json.loads(link.execute("SELECT buckets FROM sink WHERE name = ?", (sink,)).fetchone()[0])
            state = {key: (float(value[0]), float(value[1])) for key, value in raw.items()}
            taken, wait = 0, 0.0
            while taken < most and wait == 0.0:
                wait = take(limits, state, now)
                taken += wait == 0.0
            if taken:
                link.execute("UPDATE sink SET buckets = ? WHERE name = ?", (json.dumps(state), sink))
        return taken, wait

    def state(self, sink: str) -> SinkState:
        """What is remembered about a sink. Raises StoreError."""
        with self.database.reading() as link:
            row = link.execute(
                "SELECT disabled, blocked_until, failures, open_until FROM sink WHERE name = ?", (sink,)
            ).fetchone()
        return SinkState(*row) if row else SinkState()

    def settle(self, results: Sequence[Result]) -> None:
        """Note what became of attempts, all in one commit. Raises StoreError."""
        with self.database.transaction() as link:
            for result in results:
                _settle_row(link, result)
                _settle_sink(link, result)

    def prune(self, now: float, keep: float) -> int:
        """Remove finished rows older than `keep` seconds; returns how many. Raises StoreError."""
        with self.database.transaction() as link:
            done = link.execute("DELETE FROM outbox WHERE state <> 'waiting' AND finished < ?", (now - keep,))
            return done.rowcount

    def expire(self, now: float) -> int:
        """Give up what waits past its deadline for sinks that are switched off; returns how many. Raises StoreError.

        Elsewhere a deadline ends a message at its next failure: what waited for this watch to run is sent once more.
        """
        off = "SELECT name FROM sink WHERE disabled <> ''"
        with self.database.transaction() as link:
            done = link.execute(
                f"UPDATE outbox SET state = 'dead', error = 'Given up: the sink is switched off.', finished = ? "
                f"WHERE state = 'waiting' AND deadline < ? AND sink IN ({off})",
                (now, now),
            )
            link.execute(
                f"DELETE FROM lane WHERE sink IN ({off}) AND NOT EXISTS (SELECT 1 FROM outbox WHERE "
                "outbox.sink = lane.sink AND outbox.lane = lane.lane AND outbox.state = 'waiting')"
            )
            return done.rowcount

    def move(self, seconds: float, now: float) -> None:
        """Move what waits until a moment after `now`, when the clock was moved. Raises StoreError."""
        with self.database.transaction() as link:
            link.execute("UPDATE lane SET due = due + ? WHERE due > ?", (seconds, now))
            link.execute(
                "UPDATE sink SET blocked_until = blocked_until + ?, open_until = open_until + ?, buckets = '{}'",
                (seconds, seconds),
            )

    def drop_unknown(self, sinks: Iterable[str]) -> int:
        """Lay aside what waits for sinks that the configuration no longer has; returns how many. Raises StoreError."""
        known = sorted(sinks)
        marks = ",".join("?" * len(known))
        with self.database.transaction() as link:
            why = "the configuration has no such sink any more"
            done = link.execute(
                f"UPDATE outbox SET state = 'dead', error = ?, finished = created WHERE state = 'waiting' "
                f"AND sink NOT IN ({marks})",
                (why, *known),
            )
            link.execute(f"DELETE FROM lane WHERE sink NOT IN ({marks})", known)
            return done.rowcount


def _head(link: sqlite3.Connection, sink: str, lane: str) -> Row | None:
    found = link.execute(
        "SELECT seq, id, sink, lane, kind, body, created, deadline, attempts FROM outbox "
        "WHERE sink = ? AND lane = ? AND state = 'waiting' ORDER BY seq LIMIT 1",
        (sink, lane),
    ).fetchone()
    return Row(*found) if found else None


def _settle_row(link: sqlite3.Connection, result: Result) -> None:
    row = result.row
    lane = (row.sink, row.lane)
    if result.fate == "retry":
        link.execute("UPDATE outbox SET attempts = attempts + 1, error = ? WHERE seq = ?", (result.error, row.seq))
        link.execute("UPDATE lane SET due = ? WHERE sink = ? AND lane = ?", (result.due, *lane))
        return
    if result.fate == "disable":
        link.execute("UPDATE outbox SET attempts = attempts + 1, error = ? WHERE seq = ?", (result.error, row.seq))
        return
    if row.kind == HEARTBEAT:
        link.execute("DELETE FROM outbox WHERE seq = ?", (row.seq,))
    else:
        link.execute(
            "UPDATE outbox SET state = ?, attempts = attempts + 1, error = ?, finished = ? WHERE seq = ?",
            (result.fate, result.error, result.now, row.seq),
        )
    if _head(link, *lane) is None:
        link.execute("DELETE FROM lane WHERE sink = ? AND lane = ?", lane)
    else:
        link.execute("UPDATE lane SET due = ? WHERE sink = ? AND lane = ?", (result.now, *lane))


def _settle_sink(link: sqlite3.Connection, result: Result) -> None:
    name = result.row.sink
    _ensure(link, name)
    if result.fate == "delivered":
        link.execute(
            "UPDATE sink SET last_ok = ?, failures = 0, open_until = 0, error = '' WHERE name = ?", (result.now, name)
        )
        return
    link.execute(
        "UPDATE sink SET error = ?, failures = failures + ?, open_until = max(open_until, ?), "
        "blocked_until = max(blocked_until, ?) WHERE name = ?",
        (result.error, int(result.trips), result.open_until, result.block, name),
    )
    if result.fate == "disable":
        link.execute("UPDATE sink SET disabled = ?, disabled_at = ? WHERE name = ?", (result.error, result.now, name))


def _ensure(link: sqlite3.Connection, sink: str) -> None:
    link.execute("INSERT OR IGNORE INTO sink (name) VALUES (?)", (sink,))
