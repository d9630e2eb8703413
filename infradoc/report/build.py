"""Builds report v1 from what a watch or a replay has seen."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infradoc.plurals import agreeing
from infradoc.report.artefact_words import artefact_words
from infradoc.report.asides import changed_part, changes_seen, considered_part
from infradoc.report.idle import is_idle, needs_traffic
from infradoc.report.model import SCHEMA, Report, Status
from infradoc.report.quoting import quoted
from infradoc.report.words import words
from infradoc_rules.advise.base import Advice
from infradoc_rules.considered import considered
from infradoc_rules.fatal import END_SERVICE
from infradoc_rules.knobs import knob_table
from infradoc_rules.model import Action, Change, Event, Evidence, Finding, SignalFrame, Value

# What watches a live server loads numpy; a post-mortem needs none of it and half its time would go there.
if TYPE_CHECKING:
    from infradoc.monitor.findings import FindingLog
    from infradoc.report.vitals import Vitals
    from infradoc.signals.frame import StoreFrame
    from infradoc.signals.store import Store
    from infradoc_rules.considered import Considered

_SHOWN_BY = (
    ("gpu_", "gpu"),
    ("torch_", "allocator"),
    ("log_event", "log"),
    ("client_", "client"),
    ("config_", "settings"),
    ("proc_", "host"),
    ("host_", "host"),
)  # start of a signal's name, who shows it


@dataclass(frozen=True, slots=True)
class Observation:
    """What a report is made of. `blind_spots` are sentences on sources that could not be used; `seconds` the span.

    `named`: kinds of what may be missing (log, client, settings) whose source the configuration names already.
    """

    name: str
    store: Store
    log: FindingLog
    frame: StoreFrame
    seconds: float
    blind_spots: Sequence[str] = ()
    unparsed_lines: int = 0
    named: frozenset[str] = frozenset()


def build_report(seen: Observation, lang: str = "en") -> Report:
    """Report v1 of one target."""
    from infradoc.report.vitals import read_vitals

    say = words(lang)
    findings = seen.log.reported()
    vitals = read_vitals(seen.frame, seen.seconds, lang)
    hidden = [say["source_failed"].format(source=name, error=text) for name, text in seen.store.errors.items()]
    hidden += seen.blind_spots
    broken = _broken(seen.frame) if not findings else None
    idle = not findings and not broken and is_idle(seen.frame, seen.seconds)
    unseen = {name for name, rule in seen.log.rules.items() if idle and needs_traffic(rule)}
    if idle:
        hidden.insert(0, say["idle"].format(seconds=seen.seconds))
        hidden += [say["need_traffic"].format(ids=", ".join(sorted(unseen)))] if unseen else []
    if broken is not None:
        hidden.insert(0, artefact_words(lang)["broke_off"].format(**quoted(broken, 200)))
    hidden += needs_lines(
        {name: lacks for name, lacks in seen.log.blind.items() if name not in unseen}, say, seen.named
    )
    for why in dict.fromkeys(vitals.missing.values()):
        hidden.append(f"{', '.join(name for name, reason in vitals.missing.items() if reason == why)}: {why}")
    if seen.store.dropped_series:
        hidden.append(say["dropped_series"].format(n=seen.store.dropped_series))
    return {
        "schema": SCHEMA,
        "status": status_of(findings, seen.log.enough_seen and server_seen(seen.store) and broken is None),
        "target": {"name": seen.name, "system": seen.store.system, "version": seen.store.version},
        "vitals": {name: number(value) for name, value in vitals.values.items()},
        "findings": [finding_part(finding, seen.frame) for finding in findings],
        "checked": sorted(name for name in seen.log.checked if name not in unseen),
        "not_visible": list(dict.fromkeys(hidden)),
        "unparsed_lines": seen.unparsed_lines,
        "observed": _observed(seen, vitals) | ({"idle": True} if idle else {}),
        "considered": [] if idle else considered_part(_set_aside(seen, findings, lang)),
        "changed": changed_part(changes_seen(seen.store, seen.frame.now)),
    }


def _broken(frame: StoreFrame) -> Event | None:
    """The first thing that the target's log says broke; a server that logs this is not called healthy."""
    events = frame.incident.events if frame.incident is not None else ()
    return next((event for event in events if event.name in END_SERVICE), None)


def _set_aside(seen: Observation, findings: Sequence[Finding], lang: str) -> Sequence[Considered]:
    """The rules that could be judged and come near, by how things stand at the end of the watch."""
    judged = [rule for name, rule in seen.log.rules.items() if name in seen.log.judged]
    return considered(findings, judged, seen.frame, lang, live=True)


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


_HISTORY = re.compile(r"\((\d+(?:\.\d+)?) s of history\)$")


def needs_lines(blind: Mapping[str, Sequence[str]], say: Mapping[str, str], named: Collection[str] = ()) -> list[str]:
    """What the blind rules need, in words: one line for those that lack the same. `named` as in `Observation`."""
    lacking: dict[tuple[str, ...], list[str]] = {}
    waits: dict[float, list[str]] = {}
    for name, missing in blind.items():
        # Where waiting is enough, the rest does not matter: it says what would decide.
        history = [seconds for what in missing if (seconds := _HISTORY.search(what)) is not None]
        if missing and len(history) == len(missing):
            longest = max(float(found.group(1)) for found in history)
            waits.setdefault(longest, []).append(name)
            continue
        kinds = sorted({kind_of(what) for what in missing}) or ["page"]
        lacking.setdefault(tuple(kinds), []).append(name)
    history_lines = [
        say["needs"].format(ids=", ".join(sorted(names)), missing=say["lack_history"].format(seconds=seconds))
        for seconds, names in sorted(waits.items())
    ]
    lack = {kind: say[f"lack_{kind}_named" if kind in named else f"lack_{kind}"] for kinds in lacking for kind in kinds}
    return history_lines + [
        say["needs"].format(ids=", ".join(sorted(names)), missing=say["and_also"].join(lack[kind] for kind in kinds))
        for kinds, names in sorted(lacking.items())
    ]


def kind_of(missing: str) -> str:
    """Who would show a missing signal."""
    return next((kind for start, kind in _SHOWN_BY if missing.startswith(start)), "page")


def finding_part(finding: Finding, frame: SignalFrame | None = None) -> dict[str, Any]:
    """One finding as the report shows it; `frame` knows the engine and the present values of its knobs."""
    return {
        "id": finding.id,
        "severity": finding.severity,
        "confidence": round(finding.confidence, 3),
        "role": finding.role,
        "title": finding.title,
        "cause": agreeing(finding.cause),
        "impact": agreeing(finding.impact),
        "evidence": [_evidence_part(entry) for entry in finding.evidence],
        "actions": [_action_part(action, frame) for action in finding.actions],
        "falsifier": finding.falsifier,
        "explains": list(finding.explains),
        "playbook": finding.playbook or finding.id,
    }


def _evidence_part(evidence: Evidence) -> dict[str, Any]:
    return {
        "text": agreeing(evidence.text),
        "source": evidence.source,
        "signal": evidence.signal,
        "value": number(evidence.value),
        "unit": evidence.unit,
        "weight": evidence.weight,
    }


def _action_part(action: Action, frame: SignalFrame | None) -> dict[str, Any]:
    part: dict[str, Any] = {
        "knob": action.knob,
        "change": action.change,
        "from": plain(action.from_value),
        "to": plain(action.to_value),
        "flag": action.flag,
        "live": action.live,
        "risk": action.risk,
        "cost": agreeing(action.cost),
        "why": agreeing(action.why),
        "name": action.name,
    }
    if action.also:
        part["also"] = [_also_part(knob, value, frame) for knob, value in action.also]
    return part


def _also_part(knob: str, value: Value, frame: SignalFrame | None) -> dict[str, Any]:
    """A further knob of the same change: all or nothing."""
    fact = frame.facts.get(knob) if frame is not None else None
    present = plain(fact.value) if fact is not None else None
    flag = None
    if frame is not None and knob in knob_table():
        flag = knob_table().flag(frame.system, knob, value, Advice(frame, {}).running)
    return {
        "knob": knob,
        "change": change_between(present, value),
        "from": present,
        "to": plain(value),
        "flag": flag,
    }


def change_between(present: Value | None, value: Value) -> Change:
    """The kind of a change: a switch is enabled or disabled, a known number grows or shrinks, all else is set."""
    if isinstance(value, bool):
        return "enable" if value else "disable"
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (present, value))
    if not numbers or present == value:
        return "set"
    return "increase" if float(value) > float(present or 0) else "decrease"


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
