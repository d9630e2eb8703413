"""Writes down what the core decided: incidents, groups and the messages for every sink, in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from infradoc.alerts.catalog_words import title_of
from infradoc.alerts.config import AlertsConfig, SinkConfig
from infradoc.alerts.core import Core, Entry, Flush, muted
from infradoc.alerts.database import Database
from infradoc.alerts.incident import OPEN, RANK
from infradoc.alerts.matchers import Silence, all_match
from infradoc.alerts.message import incident_message
from infradoc.alerts.outbox import HEARTBEAT, put
from infradoc.alerts.records import forget_groups, load_silences, save_group, save_incidents
from infradoc.alerts.sinks.base import Sink


class Clerk:
    """Memory follows only when the transaction is on disk: a full disk between the two loses nothing."""

    def __init__(self, config: AlertsConfig, core: Core, database: Database, sinks: Sequence[Sink]) -> None:
        self._config = config
        self._core = core
        self._database = database
        self._sinks = sinks
        self._beats: dict[tuple[str, str], float] = {}

    def store(self, now: float, changes: Sequence[dict[str, Any]]) -> bool:
        """Queue what is due and `changes`; whether there was anything. Raises StoreError: then nothing happened."""
        core, timing = self._core, self._config.timing
        silences = load_silences(self._database, now)
        flushes, beats = core.plan(now, silences), self._due_beats(now, silences)
        stored = {key: core.incidents.get(key) for key in core.dirty}
        if not (flushes or changes or beats or stored):
            return False
        for flush in flushes:
            stored |= {e.incident.fingerprint: e.after(now, timing) for e in flush.entries if e.news}
        with self._database.transaction() as link:
            save_incidents(link, stored.items())
            for flush in flushes:
                save_group(link, flush.group, flush.now)
                self._queue_flush(link, flush)
            if flushes:
                forget_groups(link, now - timing.group_interval)
            for message in changes:
                self._queue_change(link, message)
            for sink, flush in beats:
                self._put(link, sink, flush, flush.entries, f"group:{flush.group}", HEARTBEAT)
        for flush in flushes:
            core.commit(flush)
            self._beats.update({(sink.name, flush.group): now for sink in self._sinks})
        self._beats.update({(sink.name, flush.group): now for sink, flush in beats})
        core.dirty.clear()
        return True

    def _queue_flush(self, link: sqlite3.Connection, flush: Flush) -> None:
        kind = HEARTBEAT if flush.repeat else ""  # a sink that is down for a day need not hear six repeats afterwards
        for sink in self._sinks:
            entries = [entry for entry in flush.entries if wants(sink.config, entry)]
            news = [entry for entry in entries if entry.news]
            if sink.per == "incident":
                for entry in news:
                    self._put(link, sink, flush, [entry], entry.incident.fingerprint, kind)
            elif news:
                self._put(link, sink, flush, entries, f"group:{flush.group}", kind)

    def _put(
        self, link: sqlite3.Connection, sink: Sink, flush: Flush, entries: Sequence[Entry], lane: str, kind: str = ""
    ) -> None:
        message = incident_message(flush, entries, title_of)
        put(link, message, sink.name, lane, flush.now + sink.config.give_up, kind)

    def _queue_change(self, link: sqlite3.Connection, message: dict[str, Any]) -> None:
        for sink in self._sinks:
            if sink.takes_changes:
                lane = f"change:{message['group']}"
                put(link, message, sink.name, lane, float(message["created"]) + sink.config.give_up)

    def _due_beats(self, now: float, silences: Sequence[Silence]) -> list[tuple[Sink, Flush]]:
        """What must be said again to sinks that forget (Alertmanager), by group."""
        out: list[tuple[Sink, Flush]] = []
        for sink in self._sinks:
            for key, entries in self._open_entries(sink, now, silences).items() if sink.heartbeat else ():
                if now - self._beats.get((sink.name, key), 0.0) >= sink.heartbeat:
                    out.append((sink, Flush(key, now, True, tuple(entries), self._config.group_by)))
        return out

    def _open_entries(self, sink: Sink, now: float, silences: Sequence[Silence]) -> dict[str, list[Entry]]:
        groups: dict[str, list[Entry]] = {}
        for incident in self._core.incidents.values():
            if incident.told in OPEN and incident.want in OPEN and not muted(incident, now, silences):
                entry = Entry(incident, incident.told, False)
                if wants(sink.config, entry):
                    groups.setdefault(self._core.group_of(incident), []).append(entry)
        return groups


def wants(sink: SinkConfig, entry: Entry) -> bool:
    """Whether the sink's filters take this entry.

    They go by the worst severity of the episode, so that whoever heard it fire also hears it end.
    """
    incident = entry.incident
    if entry.status == "resolved" and not sink.send_resolved:
        return False
    if RANK.get(incident.peak, 1) < RANK[sink.severity]:
        return False
    labels = {"target": incident.target, "finding": incident.finding, "severity": incident.peak}
    return all_match(sink.match, labels)
