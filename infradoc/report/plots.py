"""What a report in HTML draws: the left side of each condition over time, its threshold, and when the rule fired."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infradoc.monitor.findings import FindingLog
from infradoc.signals.frame import StoreFrame
from infradoc.signals.store import Store
from infradoc_rules.conditions import Variables, variables
from infradoc_rules.model import Event
from infradoc_rules.promql import Expr, PromqlError, evaluate
from infradoc_rules.promql.nodes import Binary
from infradoc_rules.schema import Condition, Rule

MOMENTS = 120  # evaluations per plot: more than a plot 600 pixels wide can show apart
MOST_PLOTS = 6  # per finding
_COMPARISONS = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
_LOGGED = (  # fields of log events that are worth a plot
    ("stats_line", "kv_usage"),
    ("stats_line", "running"),
    ("stats_line", "waiting"),
    ("train_step", "loss"),
    ("gpu_state", "used_bytes"),
)
_FEWEST = 3  # points that make a line


@dataclass(frozen=True, slots=True)
class Plot:
    """One line over time. `times` are Unix seconds; a value is None where there was no data.

    `comparison` and `threshold` say when the condition holds; `onset` is when the finding first fired.
    """

    finding: str
    title: str
    times: tuple[float, ...]
    values: tuple[float | None, ...]
    comparison: str | None = None
    threshold: float | None = None
    onset: float | None = None


def live_plots(log: FindingLog, store: Store, now: float) -> list[Plot]:
    """The conditions of every reported finding, evaluated over the time that the store still holds."""
    frame = StoreFrame(store, now)
    looks = store.look_times(now)
    if len(looks) < _FEWEST:
        return []
    moments = _spread(looks)
    return [plot for finding in log.reported() for plot in _of_rule(log, log.rules[finding.id], frame, moments)]


def logged_plots(events: Sequence[Event], findings: Sequence[str]) -> list[Plot]:
    """What timed lines of a log state again and again; shown with the first finding, if there is one."""
    made = []
    for name, field in _LOGGED if findings else ():
        stated = [(event.time, event.fields.get(field)) for event in events if event.name == name]
        points = [(time, float(value)) for time, value in stated if time is not None and isinstance(value, int | float)]
        if len(points) >= _FEWEST and points[0][0] < points[-1][0]:
            kept = points[:: max(1, len(points) // (4 * MOMENTS))]
            made.append(Plot(findings[0], f"{name} {field}", *zip(*kept, strict=True)))  # type: ignore[arg-type]
    return made


def _spread(looks: Sequence[float]) -> list[float]:
    step = max(1, math.ceil(len(looks) / MOMENTS))
    return list(looks[::-step])[::-1]  # the newest look is always one of them


def _of_rule(log: FindingLog, rule: Rule, frame: StoreFrame, moments: Sequence[float]) -> Iterator[Plot]:
    if rule.live is None:
        return
    names = variables(rule, frame)
    branches = [
        [plot for one in branch.when if (plot := _of_condition(log, rule, one, names, frame, moments)) is not None]
        for branch in rule.live.branches
    ]
    # A rule has branches for engines that show different things: draw the one that explains the firing.
    yield from max(branches, key=_held, default=[])[:MOST_PLOTS]


def _held(plots: Sequence[Plot]) -> tuple[bool, int, int]:
    """How well a branch explains the firing: whether all its conditions hold at some moment, and at how many."""
    if not plots:
        return (False, 0, 0)
    together = sum(all(_holds(plot, place) for plot in plots) for place in range(len(plots[0].times)))
    return (together > 0, len(plots), together)


def _holds(plot: Plot, place: int) -> bool:
    value, limit = plot.values[place], plot.threshold
    return value is not None and limit is not None and _COMPARISONS[plot.comparison or "=="](value, limit)


def _of_condition(
    log: FindingLog, rule: Rule, condition: Condition, names: Variables, frame: StoreFrame, moments: Sequence[float]
) -> Plot | None:
    expression = names.expression(condition.expr or "")
    root = expression.root
    if not isinstance(root, Binary) or root.op not in _COMPARISONS:
        return None
    left, right = (Expr(expression.text, side, expression.variables) for side in (root.left, root.right))
    values = tuple(_at(left, frame, moment) for moment in moments)
    if sum(value is not None for value in values) < _FEWEST:
        return None
    return Plot(
        rule.id,
        _title(condition.expr or ""),
        tuple(moments),
        values,
        root.op,
        _at(right, frame, frame.now),
        log.records[rule.id].since,
    )


def _at(expr: Expr, frame: StoreFrame, moment: float) -> float | None:
    """The largest value at a moment; None when there is none or it is no number."""
    try:
        result = evaluate(expr, frame, moment)
    except PromqlError:
        return None
    values = [result] if isinstance(result, float) else [element.value for element in result]
    finite = [value for value in values if math.isfinite(value)]
    return max(finite, default=None)


def _title(text: str) -> str:
    """The left side of a condition as its rule writes it."""
    for sign in (" >= ", " <= ", " == ", " != ", " > ", " < "):
        head, found, _ = text.rpartition(sign)
        if found:
            return head
    return text
