"""Which findings are told at the end: those that stand, not those that flickered."""

from __future__ import annotations

from typing import Any

import pytest

from infradoc.monitor.findings import FindingLog
from infradoc_rules.catalog import load_catalog
from infradoc_rules.engine import RuleResult, RuleResults
from infradoc_rules.model import Finding

CATALOG = load_catalog()
ROOT, SYMPTOM = CATALOG.get("kv-thrashing-preemption"), CATALOG.get("queue-saturation")


def finding(rule_id: str, confidence: float = 0.8) -> Finding:
    return Finding(rule_id, "warning", confidence, "t", "c", "i", "f")


def results(**firing: Any) -> RuleResults:
    """firing: root / symptom -> confidence, None (quiet) or "unknown"."""
    made = []
    for key, rule in (("root", ROOT), ("symptom", SYMPTOM)):
        value = firing.get(key)
        if value == "unknown":
            made.append(RuleResult(rule, "unknown", None, ("llm_x",)))
        elif value is None:
            made.append(RuleResult(rule, "ok", None))
        else:
            made.append(RuleResult(rule, "firing", 0.0, (), finding(rule.id, value)))
    return RuleResults(tuple(made), {one.id: one for one in made})


def play(pattern: str) -> FindingLog:
    """One character a tick: `.` quiet, `1` to `9` firing with that tenth of confidence, `?` unknown."""
    log = FindingLog()
    for mark in pattern:
        value: Any = None if mark == "." else "unknown" if mark == "?" else int(mark) / 10
        log.note(results(root=value), 0.0)
    return log


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("." * 20, False),
        ("....88888888888888888", True),
        ("8888................", False),
        ("..........888.......", False),
        ("........8888888888..", True),
        ("...................8", False),
        ("..................88", True),
        ("8", True),
        ("????????????????????", False),
    ],
)
def test_told_at_the_end(pattern: str, told: bool) -> None:
    assert bool(play(pattern).reported()) == told


def test_shown_at_its_strongest() -> None:
    assert play("..5785").reported()[0].confidence == 0.8


def test_root_folds_its_symptom_even_when_they_peaked_apart() -> None:
    log = FindingLog()
    for tick in range(10):
        log.note(results(root=0.9 if tick > 3 else None, symptom=0.95), float(tick))
    first, second = log.reported()
    assert (first.id, first.role, first.explains) == (ROOT.id, "root", (SYMPTOM.id,))
    assert (second.id, second.role, second.severity) == (SYMPTOM.id, "symptom", "info")


def test_opened_and_resolved_are_told_once() -> None:
    log = FindingLog()
    seen = [log.note(results(root=value), 0.0) for value in [None, 0.8, 0.9, None, None]]
    assert [[one.id for one in opened] for opened, _ in seen] == [[], [ROOT.id], [], [], []]
    assert [[one.id for one in gone] for _, gone in seen] == [[], [], [], [ROOT.id], []]


def test_blind_is_never_checked() -> None:
    log = play("????")
    assert log.blind == {ROOT.id: ("llm_x",)} and log.checked == (SYMPTOM.id,)
    assert play("??..").blind == {} and ROOT.id in play("??..").checked
