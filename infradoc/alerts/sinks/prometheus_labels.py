"""Labels and annotations of an incident as Alertmanager knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infradoc.alerts.message import text_of
from infradoc.alerts.render import action_text, carried_titles, evidence_line


def alert_labels(view: Mapping[str, Any]) -> dict[str, str]:
    """What identifies an alert: the same for firing and resolved. Empty labels do not exist there."""
    found = {
        "alertname": view["finding"],
        "severity": view["severity"],
        "target": view["target"],
        "system": view["system"] or "",
        "source": "infradoc",
    }
    return {name: str(value) for name, value in found.items() if value}


def alert_annotations(view: Mapping[str, Any], lang: str) -> dict[str, str]:
    """What people read."""
    text = text_of(view, lang)
    action = text.get("action")
    evidence = text.get("evidence") or []
    found = {
        "summary": text["title"],
        "description": text.get("cause") or "",
        "impact": text.get("impact") or "",
        "evidence": "; ".join(evidence_line(item) for item in evidence[:2]),
        "action": action_text(action, lang) if action else "",
        "cost": str(action.get("cost") or "") if action else "",
        "falsifier": text.get("falsifier") or "",
        "explains": "; ".join(carried_titles(view, lang)),
        "playbook": view["playbook"],
        "incident": view["id"],
        "state": "flapping" if view["status"] == "flapping" else "",
    }
    return {name: value for name, value in found.items() if value}
