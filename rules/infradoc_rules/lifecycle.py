"""ok, pending, firing, resolved, unknown: the life of a rule on one target, as a pure state machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from infradoc_rules.conditions import Outcome, Variables
from infradoc_rules.model import Event, Finding

StateName = Literal["ok", "pending", "firing", "resolved", "unknown"]

_SLACK = 0.5  # of a period: scrapes jitter, and a wait of two periods must not become three


@dataclass(frozen=True, slots=True)
class RuleState:
    """Where one rule stands. Times are Unix seconds.

    since: when this state began. held: when the condition was last true. fired: whether it has fired before.
    """

    name: StateName = "ok"
    since: float | None = None
    held: float | None = None
    fired: bool = False

    @property
    def active(self) -> bool:
        """Whether the rule speaks: only a firing rule gives a finding."""
        return self.name == "firing"


def step(
    state: RuleState, condition: bool | None, now: float, *, period: float, for_periods: int, keep: int
) -> RuleState:
    """The state after one evaluation.

    condition: True, False, or None when it cannot be known. `for_periods` sampling periods of truth beyond the first
    make a pending rule fire; `keep` periods without it let a firing rule resolve. A resolved rule is ok at the next
    evaluation without the condition. Lost signals make it unknown from any state, and it must earn firing again.
    """
    if condition is None:
        return _enter(state, "unknown", now)
    if condition:
        return _when_true(replace(state, held=now), now, period * (for_periods - _SLACK))
    if state.name == "firing":
        held = state.held if state.held is not None else now
        return state if now - held < period * (keep + _SLACK) else _enter(state, "resolved", now)
    return _enter(state, "ok", now)


def _when_true(state: RuleState, now: float, wait: float) -> RuleState:
    if state.name == "firing":
        return state
    pending = state if state.name == "pending" else _enter(state, "pending", now)
    began = pending.since if pending.since is not None else now
    return replace(_enter(pending, "firing", now), fired=True) if now - began >= wait else pending


def _enter(state: RuleState, name: StateName, now: float) -> RuleState:
    return state if state.name == name else replace(state, name=name, since=now)


@dataclass
class RuleStates:
    """The states of all rules on one target, by rule id; the only mutable thing here.

    last_finding: what a rule last said while its condition held, for the periods in which it is only kept up.
    on_incident: what the post-mortem part of a rule came to, with the events and the values of `$name` that it was
    judged on.
    """

    by_id: dict[str, RuleState] = field(default_factory=dict)
    last_finding: dict[str, Finding] = field(default_factory=dict)
    on_incident: dict[str, tuple[Sequence[Event], Variables, Outcome]] = field(default_factory=dict)

    def get(self, rule_id: str) -> RuleState:
        """The state of a rule; ok when it was never evaluated."""
        return self.by_id.get(rule_id, RuleState())
