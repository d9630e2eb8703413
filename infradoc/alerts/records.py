"""Incidents, groups and silences as rows."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterable
from dataclasses import replace

from infradoc.alerts.clean import clean_finding
from infradoc.alerts.database import Database
from infradoc.alerts.incident import Incident
from infradoc.alerts.matchers import Matcher, Silence, parse_matcher

KEPT_AFTER_END = 30 * 86_400.0  # seconds that an expired silence stays listed


def save_incidents(link: sqlite3.Connection, changed: Iterable[tuple[str, Incident | None]]) -> None:
    """Write the incidents that changed and remove those that are forgotten (None). Within a transaction.

    Cleaned: the file outlives the process, and keys and prompts have no place in it.
    """
    for key, incident in changed:
        if incident is None:
            link.execute("DELETE FROM incident WHERE fingerprint = ?", (key,))
        else:
            cleaned = {lang: clean_finding(text) for lang, text in incident.texts.items()}
            data = json.dumps(replace(incident, texts=cleaned).as_dict(), ensure_ascii=False)
            link.execute("INSERT OR REPLACE INTO incident VALUES (?, ?)", (key, data))


def save_group(link: sqlite3.Connection, key: str, last: float) -> None:
    """When a group was last told. Within a transaction."""
    link.execute("INSERT OR REPLACE INTO grouped VALUES (?, ?)", (key, last))


def forget_groups(link: sqlite3.Connection, before: float) -> None:
    """Remove groups that were last told before `before`. Within a transaction."""
    link.execute("DELETE FROM grouped WHERE last < ?", (before,))


def load_incidents(database: Database) -> list[Incident]:
    """All stored incidents. Raises StoreError."""
    with database.reading() as link:
        rows = link.execute("SELECT data FROM incident ORDER BY fingerprint").fetchall()
    with database.rows_read():
        return [Incident.from_dict(json.loads(row[0])) for row in rows]


def load_groups(database: Database) -> dict[str, float]:
    """When each group was last told. Raises StoreError."""
    with database.reading() as link:
        return dict(link.execute("SELECT key, last FROM grouped").fetchall())


def add_silence(
    database: Database, matchers: Iterable[Matcher], starts: float, ends: float, author: str, comment: str
) -> Silence:
    """Store a new silence. Raises StoreError."""
    made = Silence(f"sil_{secrets.token_hex(4)}", tuple(matchers), starts, ends, author, comment)
    texts = json.dumps([str(matcher) for matcher in made.matchers], ensure_ascii=False)
    with database.transaction() as link:
        link.execute("DELETE FROM silence WHERE ends < ?", (starts - KEPT_AFTER_END,))
        link.execute("INSERT INTO silence VALUES (?, ?, ?, ?, ?, ?)", (made.id, texts, starts, ends, author, comment))
    return made


def expire_silence(database: Database, silence_id: str, now: float) -> bool:
    """End a silence now; whether there was one in force. Raises StoreError."""
    with database.transaction() as link:
        done = link.execute("UPDATE silence SET ends = ? WHERE id = ? AND ends > ?", (now, silence_id, now))
        return done.rowcount > 0


def load_silences(database: Database, now: float | None = None) -> list[Silence]:
    """All silences, or those whose end is after `now`. Raises StoreError."""
    with database.reading() as link:
        rows = link.execute("SELECT * FROM silence WHERE ends > ? ORDER BY ends", (now or 0.0,)).fetchall()
    with database.rows_read():
        return [Silence(row[0], tuple(parse_matcher(text) for text in json.loads(row[1])), *row[2:]) for row in rows]
