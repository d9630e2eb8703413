"""Plans and outcomes as data, the same for `fix` and `demo`. Names and numbers: the same in every language."""

from __future__ import annotations

from typing import Any

from infradoc.model import Plan
from infradoc.remediation.neighbours import Neighbours
from infradoc.remediation.plan import is_drain, is_live, loser
from infradoc.remediation.run import Outcome
from infradoc.remediation.table import latency_rows


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """An outcome as data; its windows' begin and end in Unix seconds."""
    applied = outcome.applied
    entry = None if applied is None else applied.entry
    return {
        "verdict": outcome.verdict.verdict,
        "reason": outcome.verdict.reason,
        "note": outcome.note,
        "change": None
        if entry is None
        else {
            "knob": entry.knob,
            "from": entry.old,
            "to": entry.new,
            "also": [{"knob": knob, "from": old, "to": new} for knob, old, new in entry.also],
            "id": entry.change,
            "told": dict(applied.told) if applied is not None else {},
        },
        "undone": outcome.undone,
        "settle_seconds": round(outcome.settle_seconds, 2),
        "settled": outcome.settled,
        "measured_at": outcome.after.source,
        "windows": {
            "before": [round(outcome.before.begin, 3), round(outcome.before.end, 3)],
            "after": [round(outcome.after.begin, 3), round(outcome.after.end, 3)],
        },
        "other_programs": neighbours_json(outcome.neighbours),
        "checks": [
            {
                "name": check.name,
                "before": check.before,
                "after": check.after,
                "n_before": check.n_before,
                "n_after": check.n_after,
                "ratio_limit": check.ratio_limit,
                "passed": check.passed,
            }
            for check in outcome.verdict.checks
        ],
        "table": [
            {"name": name, "before": one, "after": two}
            for name, one, two in latency_rows(outcome.before, outcome.after)
        ],
    }


def neighbours_json(neighbours: Neighbours | None) -> dict[str, Any] | None:
    """What others took of the machine, in cores; `waited` is the share of the time in which a task waited for one."""
    if neighbours is None:
        return None
    found: dict[str, Any] = {"cores": neighbours.after.cores, "moved": neighbours.moved}
    for name, use in (("before", neighbours.before), ("after", neighbours.after)):
        waited = None if use.waited is None else round(use.waited, 4)
        found[name] = {"cores": round(use.others, 3), "waited": waited}
    return found


def plan_json(plan: Plan) -> dict[str, Any]:
    """A plan as data."""
    steps = [
        {
            "finding": step.finding,
            "action": step.action.name,
            "knob": step.action.knob,
            "from": step.action.from_value,
            "to": step.action.to_value,
            "also": dict(step.action.also),
            "flag": step.action.flag,
            "live": step.action.live and is_live(step.action),
            "drain": is_drain(step.action),
            "cost": step.action.cost,
            "loser": loser(step.action),
            "undo_value": step.undo_value,
            "undo_also": dict(step.undo_also),
        }
        for step in plan.steps
    ]
    return {"target": plan.target, "steps": steps, "refused": [{"knob": k, "reason": r} for k, r in plan.refused]}
