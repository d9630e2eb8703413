"""What `infradoc alerts list` tells: as data, and as lines for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infradoc.alerts import desk
from infradoc.alerts.config import AlertsConfig
from infradoc.alerts.core import muted
from infradoc.alerts.database import Database
from infradoc.alerts.records import load_incidents, load_silences
from infradoc.alerts.words import clock


def overview(config: AlertsConfig, database: Database, now: float) -> dict[str, Any]:
    """All that `list` tells, as data. Raises StoreError."""
    incidents = [i for i in load_incidents(database) if not i.over]
    silences = load_silences(database, now)
    known = desk.sinks(database)
    empty = {"disabled": "", "error": "", "waiting": 0, "dead": 0, "delivered": 0, "last_ok": None}
    sinks = {name: {"kind": sink.kind, **empty, **known.get(name, {})} for name, sink in config.sinks.items()}
    return {
        "incidents": [
            {
                "id": i.id, "target": i.target, "finding": i.finding, "severity": i.severity,
                "state": "flapping" if i.flapping else i.state, "since": i.since, "told": i.told,
                "silenced": muted(i, now, silences), "carried_by": i.carried_by or None,
                "title": next(iter(i.texts.values()), {}).get("title", ""),
            }
            for i in incidents
        ],
        "silences": [silence.as_dict() for silence in silences],
        "sinks": sinks,
        "waiting": desk.rows(database, "waiting"),
        "dead": desk.rows(database, "dead"),
    }  # fmt: skip


def overview_lines(shown: Mapping[str, Any]) -> list[str]:
    """`overview` for people."""
    lines = ["incidents:"]
    for item in shown["incidents"]:
        part = f", part of {item['carried_by']}" if item["carried_by"] else ""
        muted_now = ", silenced" if item["silenced"] else ""
        lines.append(f"  [{item['severity']}] {item['state']}{muted_now}{part}: {item['title']} ({item['target']})")
        lines.append(f"      since {clock(item['since'])}, {item['id']}")
    lines += [] if shown["incidents"] else ["  none open"]
    lines += ["", "silences:", *silence_lines(shown["silences"])]
    lines += ["", "sinks:"]
    for name, sink in shown["sinks"].items():
        lines += _sink_lines(name, sink)
    lines += [] if shown["sinks"] else ["  none configured"]
    if shown["dead"]:
        lines += ["", "given up (infradoc alerts replay sends them again):"]
        lines += [f"  {row['id']} to {row['sink']}, {clock(row['created'])}: {row['error']}" for row in shown["dead"]]
    return lines


def _sink_lines(name: str, sink: Mapping[str, Any]) -> list[str]:
    last = f"last delivered {clock(sink['last_ok'])}" if sink["last_ok"] else "no alert delivered yet"
    lines = [f"  {name} ({sink['kind']}): {sink['waiting']} waiting, {sink['dead']} given up, {last}"]
    if sink["disabled"]:
        lines.append(f"      switched off: {sink['disabled']} `infradoc alerts replay --sink {name}` switches it on.")
    elif sink["error"]:
        lines.append(f"      last error: {sink['error']}")
    return lines


def silence_lines(silences: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line each."""
    lines = []
    for item in silences:
        note = f": {item['comment']}" if item["comment"] else ""
        lines.append(f"  {item['id']} {' '.join(item['matchers'])} until {clock(item['ends'])}, {item['author']}{note}")
    return lines or ["  none"]
