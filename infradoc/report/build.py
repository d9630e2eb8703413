"""Builds report v1 from what a watch or a replay has seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infradoc.monitor.findings import FindingLog
from infradoc.report.model import SCHEMA, Report, Status
from infradoc.report.vitals import Vitals, read_vitals
from infradoc.report.words import words
from infradoc.signals.frame import StoreFrame
from infradoc.signals.store import Store
from infradoc_rules.model import Action, Evidence, Finding, Value

_MISSING_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Observation:
    """What a report is made of. `blind_spots` are sentences on sources that could not be used; `seconds` the span."""

    name: str
    store: Store
    log: FindingLog
    frame: StoreFrame
    seconds: float
    blind_spots: Sequence[str] = ()
    unparsed_lines: int = 0


def build_report(seen: Observation, lang: str = "en") -> Report:
    """Report v1 of one target."""
    say = words(lang)
    findings = seen.log.reported()
    vitals = read_vitals(seen.frame, seen.seconds, lang)
    hidden = [say["source_failed"].format(source=name, error=text) for name, text in seen.store.errors.items()]
    hidden += seen.blind_spots
    blind = seen.log.blind
    hidden += needs_lines(blind, say)
    for why in dict.fromkeys(vitals.missing.values()):
        hidden.append(f"{', '.join(name for name, reason in vitals.missing.items() if reason == why)}: {why}")
    if seen.store.dropped_series:
        hidden.append(say["dropped_series"].format(n=seen.store.dropped_series))
    return {
        "schema": SCHEMA,
        "status": status_of(findings, seen.log.enough_seen and server_seen(seen.store)),
        "target": {"name": seen.name, "system": seen.store.system, "version": seen.store.version},
        "vitals": {name: number(value) for name, value in vitals.values.items()},
        "findings": [finding_part(finding) for finding in findings],
        "checked": list(seen.log.checked),
        "not_visible": list(dict.fromkeys(hidden)),
        "unparsed_lines": seen.unparsed_lines,
        "observed": _observed(seen, vitals),
    }


def unknown_report(name: str, reasons: Sequence[str], system: str | None = None) -> Report:
    """The report of a target that could not be looked at."""
    return {
        "schema": SCHEMA,
        "status": "unknown",
        "target": {"name": name, "system": system, "version": None},
        "vitals": dict.fromkeys(
            (
                "gpu_utilization_ratio",
                "gpu_memory_used_bytes",
                "queue_depth",
                "ttft_p99_seconds",
                "itl_p99_seconds",
                "kv_usage_ratio",
            )
        ),
        "findings": [],
        "checked": [],
        "not_visible": list(reasons),
        "unparsed_lines": 0,
    }


def status_of(findings: Sequence[Finding], could_judge: bool) -> Status:
    """unhealthy for a critical finding, degraded for a warning; else ok, if enough could be judged to say so."""
    severities = {finding.severity for finding in findings}
    if "critical" in severities:
        return "unhealthy"
    if "warning" in severities:
        return "degraded"
    return "ok" if could_judge else "unknown"


def server_seen(store: Store) -> bool:
    """Whether the server's own page was read, and still could be at the end: without it "healthy" would be a guess."""
    return "metrics" in store.sources and "metrics" not in store.errors


def needs_lines(blind: Mapping[str, Sequence[str]], say: Mapping[str, str]) -> list[str]:
    """What each blind rule needs; those that only lack a GPU to look at share one line."""
    gpu = [name for name, missing in blind.items() if missing and all(what.startswith("gpu_") for what in missing)]
    lines = [say["needs"].format(id=name, missing=shortened(what)) for name, what in blind.items() if name not in gpu]
    return [*lines, say["needs_gpu"].format(ids=", ".join(gpu))] if gpu else lines


def shortened(missing: Sequence[str]) -> str:
    """The first missing signals, and how many more there are."""
    shown = ", ".join(missing[:_MISSING_SHOWN]) or "?"
    rest = len(missing) - _MISSING_SHOWN
    return f"{shown} (+{rest})" if rest > 0 else shown


def finding_part(finding: Finding) -> dict[str, Any]:
    """One finding as the report shows it."""
    return {
        "id": finding.id,
        "severity": finding.severity,
        "confidence": round(finding.confidence, 3),
        "role": finding.role,
        "title": finding.title,
        "cause": finding.cause,
        "impact": finding.impact,
        "evidence": [_evidence_part(entry) for entry in finding.evidence],
        "actions": [_action_part(action) for action in finding.actions],
        "falsifier": finding.falsifier,
        "explains": list(finding.explains),
        "playbook": finding.playbook or finding.id,
    }


def _evidence_part(evidence: Evidence) -> dict[str, Any]:
    return {
        "text": evidence.text,
        "source": evidence.source,
        "signal": evidence.signal,
        "value": number(evidence.value),
        "unit": evidence.unit,
        "weight": evidence.weight,
    }


def _action_part(action: Action) -> dict[str, Any]:
    return {
        "knob": action.knob,
        "change": action.change,
        "from": plain(action.from_value),
        "to": plain(action.to_value),
        "flag": action.flag,
        "live": action.live,
        "risk": action.risk,
        "cost": action.cost,
        "why": action.why,
        "name": action.name,
    }


def number(value: float | None) -> float | None:
    """A number that JSON can hold: NaN and infinities become null."""
    return None if value is None or not math.isfinite(value) else value


def plain(value: Value | None) -> Value | None:
    """A knob's value for JSON; numpy scalars and infinities are made plain."""
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    return number(float(value))


def _observed(seen: Observation, vitals: Vitals) -> dict[str, Any]:
    part: dict[str, Any] = {
        "seconds": round(seen.seconds, 1),
        "looks": seen.log.count,
        "end": round(seen.frame.now, 3),
        "sources": sorted(seen.store.sources),
        "samples": vitals.samples,
    }
    measured: Mapping[str, str] = {name: where for name, where in vitals.sources.items() if where == "client"}
    if measured:
        part["measured_at_client"] = sorted(measured)
    return part
