"""A notification as neutral data: what the outbox keeps, and what every sink renders in its own way and language."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from infradoc.alerts.clean import clean_finding, clean_text
from infradoc.alerts.core import Entry, Flush
from infradoc.alerts.incident import OPEN, RANK, Incident

SCHEMA = "infradoc.notification/v1"
TitleOf = Callable[[str, str], str]


def incident_message(flush: Flush, entries: Sequence[Entry], title_of: TitleOf) -> dict[str, Any]:
    """The message of `entries`, a part of `flush`. Its id follows from what it says: the same flush, the same id."""
    views = [_view(entry, title_of) for entry in entries]
    parts = [f"{v['id']}:{v['sequence']}:{v['status']}" for v in views]
    status = "firing" if any(v["status"] in OPEN for v in views) else "resolved"
    return {
        "schema": SCHEMA,
        "id": stable_id("ntf", flush.group, f"{flush.now:.3f}", *parts),
        "kind": "incidents",
        "created": flush.now,
        "group": clean_text(flush.group, 200),
        "grouped_by": flush.by,
        "status": status,
        "repeat": flush.repeat,
        "incidents": views,
    }


def stable_id(prefix: str, *parts: str) -> str:
    """A short id that follows from `parts`."""
    return f"{prefix}_{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:24]}"


def _view(entry: Entry, title_of: TitleOf) -> dict[str, Any]:
    incident = entry.incident
    texts = {lang: clean_finding(text) for lang, text in incident.texts.items()}
    return {
        "id": incident.id,
        "fingerprint": incident.fingerprint,
        "sequence": incident.sequence + (1 if entry.news else 0),
        "status": entry.status,
        "news": entry.news,
        "target": clean_text(incident.target, 200),
        "system": clean_text(incident.system, 100) if incident.system else None,
        "finding": incident.finding,
        "severity": incident.severity,
        "since": incident.since,
        "ended": incident.resolved_at if entry.status == "resolved" else None,
        "texts": {lang: _text(text) for lang, text in texts.items()},
        "titles": _titles(incident, title_of),
        "playbook": next((text["playbook"] for text in texts.values()), incident.finding),
        "carried_by": incident.carried_by,
        "carries": [
            {"finding": other.finding, "severity": other.severity, "titles": _titles(other, title_of)}
            for other in entry.carries
        ],
    }


def _text(text: Mapping[str, Any]) -> dict[str, Any]:
    return {key: text.get(key) for key in ("title", "cause", "impact", "falsifier", "evidence", "action")}


def _titles(incident: Incident, title_of: TitleOf) -> dict[str, str]:
    found = {lang: clean_text(str(text.get("title") or "")) for lang, text in incident.texts.items()}
    for lang in ("en", "zh"):
        found[lang] = found.get(lang) or title_of(incident.finding, lang) or incident.finding
    return found


def change_message(now: float, target: str, change: Mapping[str, Any]) -> dict[str, Any]:
    """The message of an applied (or undone) change: knob, old and new value, finding, verdict, summary."""

    def text(key: str) -> str:
        value = change.get(key)
        return clean_text("" if value is None else str(value), 300)

    knob, old, new = text("knob"), text("old"), text("new")
    summary = text("summary") or (f"{knob}: {old} → {new}" if knob else "?")
    parts = {"knob": knob, "old": old, "new": new, "finding": text("finding"), "verdict": text("verdict")}
    name = clean_text(target, 200)
    return {
        "schema": SCHEMA,
        "id": stable_id("chg", target, f"{now:.3f}", summary),
        "kind": "change",
        "created": now,
        "group": name,
        "status": "changed",
        "repeat": False,
        "incidents": [],
        "change": {"target": name, "summary": summary, **parts},
    }


def trial_message(now: float, nonce: str, *, ended: bool = False) -> dict[str, Any]:
    """A notification that says of itself that it is a test. `nonce` keeps two tests apart; `ended` ends that one."""
    said = {
        "en": ("Test notification of infradoc: nothing is wrong", "Somebody ran `infradoc alerts test`."),
        "zh": ("infradoc 测试通知：没有故障", "有人运行了 `infradoc alerts test`。"),
    }
    empty: dict[str, Any] = {"impact": "", "falsifier": "", "evidence": [], "action": None}
    key = stable_id("test", nonce)
    status = "resolved" if ended else "firing"
    view: dict[str, Any] = {
        "id": key,
        "fingerprint": key,
        "sequence": 2 if ended else 1,
        "status": status,
        "news": True,
        "target": "infradoc-test",
        "system": None,
        "finding": "test-notification",
        "severity": "info",
        "since": now,
        "ended": now if ended else None,
        "texts": {lang: {"title": title, "cause": cause, **empty} for lang, (title, cause) in said.items()},
        "titles": {lang: title for lang, (title, _) in said.items()},
        "playbook": "",
        "carried_by": "",
        "carries": [],
    }
    return {
        "schema": SCHEMA,
        "id": f"{key}_{status}",
        "kind": "test",
        "created": now,
        "group": "infradoc-test",
        "status": status,
        "repeat": False,
        "incidents": [view],
    }


def text_of(view: Mapping[str, Any], lang: str) -> Mapping[str, Any]:
    """The finding's own texts, in `lang` if the watch gave them so, else as they came; the title always in `lang`."""
    texts: Mapping[str, Mapping[str, Any]] = view["texts"]
    found = texts.get(lang) or next(iter(texts.values()), {})
    return {**found, "title": view["titles"].get(lang) or view["finding"]}


def worst(views: Sequence[Mapping[str, Any]]) -> str:
    """The worst severity of several incidents."""
    return max((str(v["severity"]) for v in views), key=lambda s: RANK.get(s, 1), default="info")
