"""What may leave this machine in a notification: no keys, no prompts, no control characters, nothing without end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from infradoc.errors import visible
from infradoc.sources.prompts import without_prompts
from infradoc.sources.secrets import without_secrets

LONGEST_TEXT = 1000  # characters of one sentence: the catalog's longest cause has 700
MOST_EVIDENCE = 5
CUT = "…"


def clean_text(text: str, longest: int = LONGEST_TEXT) -> str:
    """One line without secrets and prompts; control characters are written out, and a long text ends in a mark."""
    plain = without_prompts(without_secrets(text[: 4 * longest]))
    line = visible(" ".join(plain.split()))
    return line if len(line) <= longest else line[: longest - 1] + CUT


def clean_finding(finding: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a report v1 finding that a notification tells, cleaned. Cleaning twice changes nothing more.

    It takes half a millisecond, so it is done when a finding leaves the memory, not at every look at a target.
    """
    evidence = [item for item in finding.get("evidence") or () if isinstance(item, Mapping)]
    evidence = sorted(evidence, key=lambda item: -float(item.get("weight") or 0))
    actions = [item for item in finding.get("actions") or [finding.get("action")] if isinstance(item, Mapping)]
    return {
        "id": str(finding["id"]),
        "severity": str(finding.get("severity", "warning")),
        "role": str(finding.get("role", "root")),
        "confidence": float(finding.get("confidence") or 0),
        "explains": [str(name) for name in finding.get("explains") or ()],
        **{key: clean_text(str(finding.get(key) or "")) for key in ("title", "cause", "impact", "falsifier")},
        "playbook": clean_text(str(finding.get("playbook") or finding["id"]), 200),
        "evidence": [_evidence(item) for item in evidence[:MOST_EVIDENCE]],
        "action": _action(actions[0]) if actions else None,
    }


def _evidence(item: Mapping[str, Any]) -> dict[str, Any]:
    source = item.get("source")
    return {
        "text": clean_text(str(item.get("text") or ""), 400),
        "source": clean_text(str(source), 200) if source else None,
    }


def _action(action: Mapping[str, Any]) -> dict[str, Any]:
    def value(key: str) -> Any:
        found = action.get(key)
        return clean_text(found, 200) if isinstance(found, str) else found

    keys = ("knob", "change", "from", "to", "flag", "live", "risk")
    return {**{key: value(key) for key in keys}, "cost": clean_text(str(action.get("cost") or "")),
            "why": clean_text(str(action.get("why") or ""))}  # fmt: skip


def cut_bytes(text: str, most: int) -> str:
    """`text` in at most `most` bytes of UTF-8, cut between characters and marked when it was longer."""
    data = text.encode()
    if len(data) <= most:
        return text
    mark = CUT.encode()
    return data[: max(0, most - len(mark))].decode(errors="ignore") + CUT


def masked(url: str) -> str:
    """Scheme and host of an address whose path or query may be the key: what messages and lists show."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "(an address that cannot be read)"
    name = f"[{host}]" if ":" in host else host
    place = f"{parts.scheme}://{visible(name)}" + (f":{port}" if port else "")
    return place + ("/…" if parts.path.strip("/") or parts.query else "")
