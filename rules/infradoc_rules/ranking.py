"""Findings in the order in which a reader needs them: causes before symptoms, and no advice against other advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from infradoc_rules.actions import ACTIONS, conflicting
from infradoc_rules.model import SEVERITY_RANK, Action, Finding


def rank(
    found: Sequence[Finding], explains: Mapping[str, Sequence[str]], recent_actions: frozenset[str] = frozenset()
) -> list[Finding]:
    """Order findings and fold symptoms.

    found: findings of all firing rules. explains: rule id -> ids that it accounts for. A folded symptom is
    information only and advises nothing: its root's change is the one that helps. Roots come first, by severity,
    then confidence.
    """
    ids = {finding.id for finding in found}
    symptoms = _symptoms(ids, explains)
    roots = [_as_root(finding, explains, ids) for finding in found if finding.id not in symptoms]
    folded = [replace(f, role="symptom", severity="info", actions=()) for f in found if f.id in symptoms]
    ordered = sorted(roots, key=_urgency) + sorted(folded, key=_urgency)
    return _without_conflicts(ordered, recent_actions)


def _symptoms(ids: set[str], explains: Mapping[str, Sequence[str]]) -> set[str]:
    """Ids that another present finding explains; of two that explain each other, both stay roots."""
    pairs = {(root, symptom) for root in ids for symptom in explains.get(root, ()) if symptom in ids}
    return {symptom for root, symptom in pairs if (symptom, root) not in pairs and root != symptom}


def _as_root(finding: Finding, explains: Mapping[str, Sequence[str]], ids: set[str]) -> Finding:
    present = tuple(symptom for symptom in explains.get(finding.id, ()) if symptom in ids)
    return replace(finding, role="root", explains=present)


def _urgency(finding: Finding) -> tuple[int, float, str]:
    return -SEVERITY_RANK[finding.severity], -finding.confidence, finding.id


def _without_conflicts(ordered: Sequence[Finding], recent_actions: frozenset[str]) -> list[Finding]:
    """Drop advice that would undo what an earlier finding advises, or what was done to this target lately.

    Without this two rules push one knob to and fro: a pool that thrashed asks for fewer requests at once, and the
    queue that this leaves would ask for more.
    """
    said = set(recent_actions)
    out = []
    for finding in ordered:
        kept = tuple(action for action in finding.actions if not _reverses(action, said))
        said.update(action.name for action in kept if action.name)
        out.append(replace(finding, actions=kept))
    return out


def _reverses(action: Action, said: set[str]) -> bool:
    return action.name in ACTIONS and not conflicting(action.name).isdisjoint(said)
