"""Findings in, plan out: which change to make, what it costs and who pays, and what was left out and why.

Pure: the engine's state, the guard and the permissions are arguments. Order: findings as given (roots first, then
severity and confidence), within a finding the rule's own order (best first); changes that the engine takes while
requests run come before those that need a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from infradoc.config import Permissions
from infradoc.model import Plan, PlanStep
from infradoc.remediation.actions.all import ACTIONS
from infradoc.remediation.actions.base import LiveAction, further_values, only_at
from infradoc.remediation.actions.chinese import LOSERS as LOSERS_IN_CHINESE
from infradoc.remediation.admin import EngineState
from infradoc.remediation.guard import Guard, direction
from infradoc.remediation.words import say
from infradoc_rules.actions import ACTIONS as ACTION_SPECS
from infradoc_rules.actions import conflicting, means
from infradoc_rules.model import Action, Finding, Value


@dataclass(frozen=True, slots=True)
class Context:
    """What a plan depends on beside the findings. `engine` is None where no admin API can be used."""

    target: str
    guard: Guard
    now: float
    engine: EngineState | None = None
    permissions: Permissions | None = None  # None: no configuration; the caller's --apply is the permission
    lang: str = "en"


def make_plan(findings: Sequence[Finding], context: Context, only: str | None = None) -> Plan:
    """Rank the findings' actions for one target.

    `only` keeps one finding id. With an engine, `steps` holds what can be applied live, best first, and `refused` the
    rest with the reason. Without one, `steps` holds all advice (nothing can be applied) and `refused` is empty.
    """
    chosen = [finding for finding in findings if only is None or finding.id == only]
    steps: list[PlanStep] = []
    refused: list[tuple[str, str]] = []
    for finding, action in advice(chosen):
        reason = None if context.engine is None else why_not(action, context, steps)
        if reason is None:
            steps.append(step_of(finding, action, context.engine))
        else:
            refused.append((action.knob, reason))
    steps.sort(key=lambda step: not is_live(step.action))
    return Plan(context.target, tuple(steps), tuple(dict.fromkeys(refused)))


def advice(findings: Iterable[Finding]) -> Iterable[tuple[Finding, Action]]:
    """Each action once, with the first finding that advises it."""
    seen: set[tuple[str, Value | None, tuple[tuple[str, Value], ...]]] = set()
    for finding in findings:
        for action in finding.actions:
            key = (action.name or action.knob, action.to_value, action.also)
            if key not in seen:
                seen.add(key)
                yield finding, action


def why_not(action: Action, context: Context, earlier: Sequence[PlanStep]) -> str | None:
    """Why an action cannot be applied to the engine now, as one sentence; None when it can."""
    carried = ACTIONS.get(action.name)
    engine = context.engine
    if engine is None or carried is None:
        return say(context.lang, "not_carried", name=action.name or action.knob)
    if not isinstance(carried, LiveAction):
        return say(context.lang, "not_live", who=say(context.lang, carried.who))
    if carried.call:
        return why_no_call(carried, context)
    state = engine.knobs.get(carried.knob)
    if state is None:
        return say(context.lang, "no_knob", knob=carried.knob)
    if state.change != "live" and not (carried.drains and state.change == "drain"):
        return say(context.lang, only_at(state.change), knob=carried.knob, flag=action.flag or state.flag)
    try:
        values = {carried.knob: carried.target_value(action, state, context.lang)}
        values |= further_values(action, engine.knobs, context.lang)
    except ValueError as error:
        return str(error)
    return contradicts(action, earlier, engine, context.lang) or next(
        (
            reason
            for knob, value in values.items()
            if (
                reason := not_permitted(knob, context.permissions, context.lang)
                or context.guard.refusal(knob, engine.knobs[knob].value, value, context.now)
            )
        ),
        None,
    )


def why_no_call(carried: LiveAction, context: Context) -> str | None:
    """Why an order that is no setting cannot be given to the engine now; None when it can."""
    return not_permitted(carried.knob, context.permissions, context.lang) or context.guard.refusal(
        carried.knob, None, True, context.now
    )


def not_permitted(knob: str, permissions: Permissions | None, lang: str = "en") -> str | None:
    """Whether the configuration forbids the change."""
    if permissions is None:
        return None
    if not permissions.apply:
        return say(lang, "no_apply")
    if permissions.knobs and knob not in permissions.knobs:
        return say(lang, "no_permission", knobs=", ".join(permissions.knobs), knob=knob)
    return None


def contradicts(action: Action, earlier: Sequence[PlanStep], engine: EngineState, lang: str = "en") -> str | None:
    """Whether a better step pushes a knob of this one the other way, or takes the memory that this one gives."""
    against = conflicting(action.name) if action.name in ACTION_SPECS else frozenset()
    ours = ways(action, engine)
    for step in earlier:
        theirs = ways(step.action, engine)
        knob = next((name for name, way in ours.items() if theirs.get(name, way) != way), None)
        if knob is None and step.action.name in against:
            knob = action.knob
            if step.action.knob != knob:
                wish = means(step.action.name, lang)
                return say(lang, "works_against", finding=step.finding, means=wish)
        if knob is not None:
            return say(lang, "other_way", finding=step.finding, knob=knob)
    return None


def ways(action: Action, engine: EngineState) -> dict[str, int]:
    """Direction of an action on each knob that it moves; one that stays where it is is not pushed either way."""
    now = {name: engine.knobs[name].value for name, _ in action.also if name in engine.knobs}
    further = {name: direction(now[name], value) for name, value in action.also if now.get(name, value) != value}
    return {action.knob: direction(action.from_value, action.to_value), **further}


def step_of(finding: Finding, action: Action, engine: EngineState | None) -> PlanStep:
    """The step with the values that its knobs have now."""
    state = engine.knobs.get(action.knob) if engine else None
    back = state.value if state and is_live(action) else None
    if engine is None or not action.also:
        return PlanStep(finding.id, action, back)
    further = further_values(action, engine.knobs)
    return PlanStep(finding.id, action, back, tuple((knob, engine.knobs[knob].value) for knob in further))


def is_live(action: Action) -> bool:
    """Whether some engine takes the action while requests run."""
    return isinstance(ACTIONS.get(action.name), LiveAction)


def is_drain(action: Action) -> bool:
    """Whether the engine lets what runs finish, or sets it back, before it makes the change."""
    carried = ACTIONS.get(action.name)
    return isinstance(carried, LiveAction) and carried.drains


def is_order(action: Action) -> bool:
    """Whether the action is done once and is no setting, so that there is nothing to take back."""
    carried = ACTIONS.get(action.name)
    return isinstance(carried, LiveAction) and bool(carried.call)


def loser(action: Action, lang: str = "en") -> str:
    """Who pays for an action."""
    carried = ACTIONS.get(action.name)
    if carried is None:
        return ""
    return LOSERS_IN_CHINESE[action.name] if lang == "zh" else carried.loser
