"""Rules on one frame: conditions, life cycle, evidence, findings. Pure but for the states it is handed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from infradoc_rules.advise import Advice, actions_for
from infradoc_rules.catalog import Catalog
from infradoc_rules.conditions import (
    Outcome,
    Reading,
    Variables,
    judge_live,
    judge_post_mortem,
    judge_sign,
    read_match,
    read_value,
    variables,
)
from infradoc_rules.confidence import confidence
from infradoc_rules.fatal import END_SERVICE
from infradoc_rules.lifecycle import RuleState, RuleStates, StateName, step
from infradoc_rules.model import Evidence, Finding, SignalFrame
from infradoc_rules.ranking import rank
from infradoc_rules.schema import Condition, PostMortem, Rule, Support
from infradoc_rules.signals import family, signal_table
from infradoc_rules.texts import number, render

_SOURCES = {"llm": "metrics", "proc": "host", "log": "log", "config": "config"}


@dataclass(frozen=True, slots=True)
class RuleResult:
    """One rule after one evaluation. `missing` names the signals that were not there, also where it could judge."""

    rule: Rule
    state: StateName
    since: float | None
    missing: tuple[str, ...] = ()
    finding: Finding | None = None

    @property
    def id(self) -> str:
        """The finding id."""
        return self.rule.id


@dataclass(frozen=True)
class RuleResults:
    """All rules after one evaluation, in catalog order."""

    results: tuple[RuleResult, ...]
    by_id: Mapping[str, RuleResult] = field(default_factory=dict)

    @property
    def checked(self) -> tuple[str, ...]:
        """Finding ids that could be judged."""
        return tuple(result.id for result in self.results if result.state != "unknown")

    @property
    def unknown(self) -> tuple[RuleResult, ...]:
        """Rules that could not be judged."""
        return tuple(result for result in self.results if result.state == "unknown")


def evaluate_rules(catalog: Catalog, frame: SignalFrame, states: RuleStates, lang: str = "en") -> RuleResults:
    """Evaluate every rule at `frame.now` and move its state on. `states` is updated; nothing else is."""
    results = tuple(_evaluate(rule, frame, states, lang) for rule in catalog.rules)
    return RuleResults(results, {result.id: result for result in results})


def findings(results: RuleResults, recent_actions: frozenset[str] = frozenset()) -> list[Finding]:
    """The findings of all firing rules: roots first, by severity, then confidence; symptoms folded under their root.

    recent_actions: names of actions taken on this target lately; none of them is advised to be reversed.
    """
    firing = [result for result in results.results if result.finding is not None]
    explains = {result.id: result.rule.explains for result in firing}
    return rank([result.finding for result in firing if result.finding is not None], explains, recent_actions)


def _evaluate(rule: Rule, frame: SignalFrame, states: RuleStates, lang: str) -> RuleResult:
    outcome, seen = _judge(rule, frame, states)
    past = seen is not None
    live = rule.live
    state = step(
        states.get(rule.id),
        outcome.holds,
        frame.now,
        period=frame.period,
        for_periods=0 if past or live is None else live.for_periods,
        keep=0 if live is None else live.keep,
    )
    states.by_id[rule.id] = state
    told = _as_past(rule) if past else rule
    finding = _finding(told, seen or frame, outcome, states, lang) if state.active else None
    return RuleResult(rule, state.name, state.since, outcome.missing, finding)


def _judge(rule: Rule, frame: SignalFrame, states: RuleStates) -> tuple[Outcome, SignalFrame | None]:
    """The outcome, and the frame that the post-mortem part saw if that decided.

    Live signals win while they can be seen, but for what a live target's log tells of something that broke
    (`frame.incident`): calm metrics do not take it back.
    """
    names = variables(rule, frame)
    live = judge_live(rule.live, frame, names) if rule.live is not None else Outcome(None)
    if live.holds or rule.post_mortem is None:
        return live, None
    incident: SignalFrame | None = getattr(frame, "incident", None)
    if incident is not None:
        past = _on_incident(rule, rule.post_mortem, incident, names, states)
        if past.holds and (rule.live is None or _tells_a_break(past, incident)):
            return Outcome(True, past.readings, live.missing, past.branch), incident
    if live.holds is not None:
        return live, None
    past = judge_post_mortem(rule.post_mortem, frame, names)
    if past.holds is None:
        # What a log would have said is not what a watch lacks.
        return Outcome(None, missing=live.missing or past.missing, young=live.young), None
    return Outcome(past.holds, past.readings, live.missing, past.branch), frame


def _on_incident(rule: Rule, part: PostMortem, incident: SignalFrame, names: Variables, states: RuleStates) -> Outcome:
    """The outcome on the incident, judged anew only when its events (and with them its facts) or `$name` changed: each
    incident is looked at for ten minutes, and over thousands of events this took as long as all live conditions twice.
    """
    kept = states.on_incident.get(rule.id)
    if kept is not None and kept[0] is incident.events and kept[1] == names:
        return kept[2]
    outcome = judge_post_mortem(part, incident, names)
    states.on_incident[rule.id] = (incident.events, names, outcome)
    return outcome


def _tells_a_break(past: Outcome, incident: SignalFrame) -> bool:
    """Whether a reading points at a line on which something broke; states are what the metrics know better."""
    broken = {event.source for event in incident.events if event.name in END_SERVICE and event.source}
    return any(reading.source in broken for reading in past.readings)


def _as_past(rule: Rule) -> Rule:
    """The rule as its post-mortem part words it."""
    part = rule.post_mortem
    if part is None:
        return rule
    return replace(
        rule,
        severity=part.severity or rule.severity,
        cause=part.cause or rule.cause,
        advise=part.advise or rule.advise,
    )


def _finding(rule: Rule, frame: SignalFrame, outcome: Outcome, states: RuleStates, lang: str) -> Finding:
    """The finding of a firing rule. While it is kept up without its condition, its last evidence stands."""
    if not outcome.holds:
        kept = states.last_finding.get(rule.id)
        if kept is not None:
            return kept
    names = variables(rule, frame)
    values = told_values(rule, frame, names)
    evidence = [_evidence(reading, values, lang, 0.0) for reading in outcome.readings]
    weights = []
    for sign, weight in _signs(rule):
        seen = judge_sign(sign, frame, names)
        if seen.holds:
            weights.append(weight)
            evidence.append(_evidence(seen.readings[0], values, lang, weight))
    advice = Advice(frame, dict(rule.thresholds), lang)
    finding = Finding(
        id=rule.id,
        severity=rule.severity,
        confidence=round(confidence(rule.prior, weights), 3),
        title=render(rule.title.get(lang), values),
        cause=render(rule.cause.get(lang), values),
        impact=render(rule.impact.get(lang), values),
        falsifier=render(rule.falsifier.get(lang), values),
        evidence=tuple(evidence),
        actions=tuple(actions_for(rule.advise, advice)),
        playbook=rule.id,
    )
    states.last_finding[rule.id] = finding
    return finding


def told_values(rule: Rule, frame: SignalFrame, names: Variables) -> dict[str, float | None]:
    """What the texts of a rule may name: its own figures, those of series first, above thresholds of the same name."""
    told = {name: read_value(text, frame, names) for name, text in rule.values.items()}
    past = rule.post_mortem.values if rule.post_mortem is not None else {}
    for name, text in past.items():
        if told.get(name) is None:
            told[name] = read_match(text, frame, names)
    return {**names, **told}


def _signs(rule: Rule) -> list[tuple[Support, float]]:
    return [(sign, sign.weight) for sign in rule.supports] + [(sign, -abs(sign.weight)) for sign in rule.against]


def _evidence(reading: Reading, values: Mapping[str, float | None], lang: str, weight: float) -> Evidence:
    condition = reading.condition
    signal = condition.signal or _first_signal(condition)
    if condition.text is not None:
        text = render(condition.text.get(lang), {**values, "value": reading.value})
    else:
        shown = "" if reading.value is None else f" = {number(reading.value)}"
        text = f"{condition.expr or condition.match}{shown}"
    source = reading.source or (_SOURCES.get(family(signal), family(signal)) if signal else None)
    return Evidence(text, source, signal, reading.value, condition.unit or _unit(signal), weight)


def _first_signal(condition: Condition) -> str | None:
    """The first canonical signal named in an expression, for evidence that does not name one."""
    if condition.expr is None:
        return None
    words = "".join(char if char.isalnum() or char == "_" else " " for char in condition.expr).split()
    return next((spec.name for word in words if (spec := signal_table().resolve(word)) is not None), None)


def _unit(signal: str | None) -> str | None:
    spec = signal_table().signals.get(signal) if signal else None
    return spec.unit if spec is not None else None


__all__ = ["RuleResult", "RuleResults", "RuleState", "RuleStates", "evaluate_rules", "findings"]
