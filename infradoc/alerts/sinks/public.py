"""An incident as programs receive it: one shape for the generic webhook, CloudEvents and PagerDuty's details."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infradoc.alerts.message import text_of
from infradoc.alerts.words import rfc3339


def public_incident(view: Mapping[str, Any], lang: str) -> dict[str, Any]:
    """What, where, since when, why, the evidence, the one change with its price, and what would prove it wrong."""
    text = text_of(view, lang)
    return {
        "incident": view["id"],
        "fingerprint": view["fingerprint"],
        "sequence": view["sequence"],
        "status": view["status"],
        "news": view["news"],
        "finding": view["finding"],
        "severity": view["severity"],
        "title": text["title"],
        "target": view["target"],
        "system": view["system"],
        "since": rfc3339(view["since"]),
        "ended": rfc3339(view["ended"]) if view["ended"] else None,
        "cause": text.get("cause") or "",
        "impact": text.get("impact") or "",
        "evidence": text.get("evidence") or [],
        "action": text.get("action"),
        "falsifier": text.get("falsifier") or "",
        "playbook": view["playbook"],
        "explains": [
            {"finding": c["finding"], "severity": c["severity"], "title": c["titles"].get(lang) or c["finding"]}
            for c in view["carries"]
        ],
        "carried_by": view["carried_by"] or None,
    }
