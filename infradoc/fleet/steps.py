"""The steps of a plan as a screen shows them: old and new value of each knob, how it takes effect, what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infradoc.model import PlanStep
from infradoc.plurals import agreeing
from infradoc.remediation.plan import is_drain, is_live, is_order, loser
from infradoc.report.text import in_words
from infradoc_rules.actions import means
from infradoc_rules.model import Value


@dataclass(frozen=True, slots=True)
class Move:
    """One knob's value before and after; None where it is not known."""

    knob: str
    before: Value | None
    after: Value | None


@dataclass(frozen=True, slots=True)
class ShownStep:
    """One step. Without `moves` it is something to do, told in `what`."""

    moves: tuple[Move, ...]
    what: str
    flag: str
    live: bool
    drain: bool
    risk: str
    why: str
    cost: str
    loser: str


def shown_step(step: PlanStep, lang: str = "en") -> ShownStep:
    """A step of a plan."""
    action = step.action
    old = dict(step.undo_also)
    moves = [Move(action.knob, action.from_value, action.to_value)]
    moves += [Move(knob, old.get(knob), value) for knob, value in action.also]
    known = not is_order(action) and not (action.from_value is None and action.to_value is None)
    return ShownStep(
        tuple(moves) if known else (),
        means(action.name, lang) or f"{action.change} {action.knob.replace('_', ' ')}",
        action.flag or "",
        action.live and is_live(action),
        is_drain(action),
        action.risk,
        agreeing(action.why),
        agreeing(action.cost),
        loser(action, lang),
    )


def advised_step(part: Mapping[str, Any], lang: str = "en") -> ShownStep:
    """An action of a report: what a recording or another engine can be told."""
    moves = [Move(str(one["knob"]), one["from"], one["to"]) for one in (part, *part.get("also", ()))]
    known = any(move.before is not None or move.after is not None for move in moves)
    return ShownStep(
        tuple(moves) if known else (),
        in_words(part, lang),
        str(part["flag"] or ""),
        bool(part["live"]),
        False,
        str(part["risk"]),
        str(part["why"]),
        str(part["cost"]),
        "",
    )
