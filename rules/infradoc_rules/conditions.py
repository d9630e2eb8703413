"""Whether a rule's conditions hold on one frame, and with which readings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from infradoc_rules.match import (
    MatchError,
    MatchExpr,
    evaluate_match,
    leading_value,
    parse_match,
    source_of,
    truth,
)
from infradoc_rules.model import SignalFrame
from infradoc_rules.needs import missing_signals, only_history_missing
from infradoc_rules.promql import Expr, PromqlError, Result, evaluate, fill_in, needed_names, parse
from infradoc_rules.schema import Condition, Live, PostMortem, Rule

ENGINE_LABEL = "engine"
MID_WINDOWS = 3  # $mid in windows: 30 s at 1 s sampling
LONG_WINDOWS = 6  # $long: 60 s; long enough for requests that take tens of seconds

TIME_NAMES = ("window", "mid", "long", "seen", "period")  # what every expression may use beside the rule's thresholds

_ANY_ENGINE = None


@dataclass(frozen=True, slots=True)
class Reading:
    """One condition with the value that its expression had; None for a match without a number."""

    condition: Condition
    value: float | None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """holds: True, False, or None when it cannot be known, with what was `missing` (`young`: history alone)."""

    holds: bool | None
    readings: tuple[Reading, ...] = ()
    missing: tuple[str, ...] = ()
    branch: str = ""
    young: bool = False


class Variables(dict[str, float]):
    """What `$name` stands for, with the texts that were read under it: a rule asks the same ones at every tick."""

    def __init__(self, values: Mapping[str, float]) -> None:
        super().__init__(values)
        self._expressions: dict[str, Expr] = {}
        self._matches: dict[str, MatchExpr] = {}

    @classmethod
    def of(cls, values: Mapping[str, float]) -> Variables:
        """These values; themselves when they are variables already."""
        return values if isinstance(values, Variables) else cls(values)

    def expression(self, text: str) -> Expr:
        """The PromQL text as an expression. Raises PromqlError."""
        found = self._expressions.get(text)
        if found is None:
            found = self._expressions[text] = parse(text, self)
        return found

    def match(self, text: str) -> MatchExpr:
        """The match text as an expression. Raises MatchError."""
        found = self._matches.get(text)
        if found is None:
            found = self._matches[text] = parse_match(filled_match(text, self))
        return found


def variables(rule: Rule, frame: SignalFrame) -> Variables:
    """What `$name` stands for in the rule's expressions: thresholds, and window, mid, long, seen, period in seconds."""
    return _variables(tuple(rule.thresholds.items()), frame.window, frame.period, _seen(frame))


@lru_cache(maxsize=1024)
def _variables(thresholds: tuple[tuple[str, float], ...], window: float, period: float, seen: float) -> Variables:
    return Variables({**dict(thresholds), **_times(window, period, seen)})


def times(frame: SignalFrame) -> dict[str, float]:
    """The durations that every expression may use, in seconds."""
    return _times(frame.window, frame.period, _seen(frame))


def _seen(frame: SignalFrame) -> float:
    """`$seen`: as much of `$long` as was watched, in half windows, so that few texts are to be read anew.

    A rate divides by the whole of its range: over 60 s of which 30 were watched, it would read half of what it is.
    """
    step = frame.window / 2
    return min(max(frame.history // step * step, frame.window), LONG_WINDOWS * frame.window)


def _times(window: float, period: float, seen: float) -> dict[str, float]:
    mid, long = MID_WINDOWS * window, LONG_WINDOWS * window
    return {"window": window, "mid": mid, "long": long, "seen": seen, "period": period}


def judge_live(live: Live, frame: SignalFrame, names: Mapping[str, float]) -> Outcome:
    """The live conditions. One branch that holds is enough; unknown only when no branch can be judged."""
    outcomes = [_expressions(branch.when, frame, names, branch.name) for branch in live.branches]
    return _best(outcomes)


def judge_post_mortem(post_mortem: PostMortem, frame: SignalFrame, names: Mapping[str, float]) -> Outcome:
    """The conditions over events and facts, as for `judge_live`."""
    outcomes = [_matches(branch.when, frame, names, branch.name) for branch in post_mortem.branches]
    return _best(outcomes)


def judge_sign(sign: Condition, frame: SignalFrame, names: Mapping[str, float]) -> Outcome:
    """One support or counter-sign, whichever kind it is."""
    if sign.expr is not None:
        return _expressions((sign,), frame, names)
    return _matches((sign,), frame, names)


def read_value(text: str, frame: SignalFrame, names: Mapping[str, float]) -> float | None:
    """The largest value of a PromQL text on the frame, for texts and sizing; None when there is none."""
    return largest(Variables.of(names).expression(text), frame)


def largest(expr: Expr, frame: SignalFrame) -> float | None:
    """The largest value of an expression on the frame; None when there is none. Raises PromqlError."""
    if missing_signals(expr, frame):
        return None
    numbers = [value for _, value in _elements(evaluate(expr, frame, frame.now))]
    return max(numbers, default=None)


def read_match(text: str, frame: SignalFrame, names: Mapping[str, float]) -> float | None:
    """The number that a match text stands for on the frame; None when it is not known or is none."""
    return leading_value(Variables.of(names).match(text), frame)


def _best(outcomes: Sequence[Outcome]) -> Outcome:
    holding = next((outcome for outcome in outcomes if outcome.holds), None)
    if holding is not None:
        return holding
    if any(outcome.holds is False for outcome in outcomes):
        return Outcome(False, missing=tuple(dict.fromkeys(name for outcome in outcomes for name in outcome.missing)))
    # Nothing could be judged: name what the branch lacks that is nearest to being judged, by waiting if that is enough.
    return min(outcomes, key=lambda outcome: (not outcome.young, len(outcome.missing)), default=Outcome(None))


def _expressions(
    items: Sequence[Condition],
    frame: SignalFrame,
    names: Mapping[str, float],
    branch: str = "",
) -> Outcome:
    known = Variables.of(names)
    exprs = [known.expression(item.expr or "") for item in items]
    gaps = [missing_signals(expr, frame) for expr in exprs]
    missing = tuple(dict.fromkeys(name for gap in gaps for name in gap))
    # A watch that is still short may decide nevertheless: tokens that move now need no minute of history.
    if any(gap and not only_history_missing(expr, frame) for expr, gap in zip(exprs, gaps, strict=True)):
        return Outcome(None, missing=missing, branch=branch)
    results: list[list[tuple[str | None, float]]] = [[]] * len(exprs)
    # One that is empty decides, whichever it is; on a healthy server nearly always the first that is looked at. Those
    # that read buckets come last: two of them took a third of all rules' time.
    order = sorted(range(len(exprs)), key=lambda index: _reads_buckets(exprs[index]))
    try:
        for index in order:
            if gaps[index]:
                continue
            results[index] = _elements(evaluate(exprs[index], frame, frame.now))
            if not results[index]:
                return Outcome(False, branch=branch)
    except PromqlError as error:
        return Outcome(None, missing=(f"a value of {error}",), branch=branch)
    if missing:
        return Outcome(None, missing=missing, branch=branch, young=True)
    joined = _join(results)
    if joined is None:
        return Outcome(False, branch=branch)
    readings = tuple(Reading(item, value) for item, value in zip(items, joined, strict=True))
    return Outcome(True, readings, branch=branch)


@lru_cache(maxsize=4096)
def _reads_buckets(expr: Expr) -> bool:
    return any(name.endswith("_bucket") for name in needed_names(expr))


def _elements(result: Result) -> list[tuple[str | None, float]]:
    """(engine rank or None, value) of each element that is true: NaN never is, a scalar is when it is not 0."""
    if isinstance(result, float):
        return [(_ANY_ENGINE, result)] if result and not math.isnan(result) else []
    pairs = ((element.labels.get(ENGINE_LABEL), element.value) for element in result)
    return [(engine, value) for engine, value in pairs if not math.isnan(value)]


def _join(results: Sequence[Sequence[tuple[str | None, float]]]) -> list[float] | None:
    """The value of each item on one engine rank where all hold; None when there is no such rank.

    An element without a rank holds for every rank: it was summed over them, or the engine has only one.
    """
    if not all(results):
        return None
    ranked = [{engine for engine, _ in result} for result in results]
    bound = [ranks for ranks in ranked if _ANY_ENGINE not in ranks]
    common: set[str | None] = set.intersection(*bound) if bound else {_ANY_ENGINE}
    if not common:
        return None
    rank = min(common, key=str)
    return [_value_at(result, rank) for result in results]


def _value_at(result: Sequence[tuple[str | None, float]], rank: str | None) -> float:
    own = [value for engine, value in result if engine == rank]
    return max(own or [value for _, value in result])


def _matches(items: Sequence[Condition], frame: SignalFrame, names: Mapping[str, float], branch: str = "") -> Outcome:
    truths: list[bool | None] = []
    readings: list[Reading] = []
    missing: dict[str, None] = {}
    known = Variables.of(names)
    for item in items:
        expr = known.match(item.match or "")
        holds = truth(evaluate_match(expr, frame))
        truths.append(holds)
        if holds is None:
            missing.update(dict.fromkeys([*(f"event {name}" for name in sorted(expr.events)), *sorted(expr.facts)]))
        readings.append(Reading(item, leading_value(expr, frame), source_of(expr.events, expr.facts, frame)))
    if False in truths:
        return Outcome(False, branch=branch)
    if None in truths:
        return Outcome(None, missing=tuple(missing), branch=branch)
    return Outcome(True, tuple(readings), branch=branch)


def filled_match(text: str, names: Mapping[str, float]) -> str:
    """A match text with its thresholds filled in. Raises MatchError for an unknown one."""
    try:
        return fill_in(text, names)
    except PromqlError as error:
        raise MatchError(error.message) from error
