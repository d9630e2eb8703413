"""Functions of a range vector: each takes one series' window and gives one number, or None for no result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from infradoc_rules.promql.arithmetic import (
    NAN,
    add_compensated,
    compensated_sum,
    divide,
    mean_absorbs,
    quantile,
    square_root,
)


@dataclass(frozen=True, slots=True)
class Range:
    """The range that a window was cut from, in ms; `scalar` is the function's scalar argument, if it has one."""

    start: int
    end: int
    scalar: float = NAN


Times = list[float]
Values = list[float]
RangeFunction = Callable[[Times, Values, Range], float | None]


def _extrapolated(times: Times, values: Values, span: Range, counter: bool) -> float | None:
    """Growth over the whole range: what was seen, stretched to the range's edges where samples come near them.

    An edge further than 1.1 mean gaps away is reached only by half a gap; a counter is not stretched below zero.
    """
    gaps = len(values) - 1
    if gaps < 1:
        return None
    growth = values[-1] - values[0]
    if growth == 0 and values.count(values[0]) == len(values) and times[-1] > times[0]:
        return 0.0  # nothing moved, as in most buckets of a histogram: whatever 0 is stretched by stays 0
    if counter:
        previous = values[0]
        for value in values:
            if value < previous:  # a reset: what was counted before it is not lost
                growth += previous
            previous = value
    seen = (times[-1] - times[0]) / 1000
    to_start, to_end = (times[0] - span.start) / 1000, (span.end - times[-1]) / 1000
    if counter and growth > 0 and values[0] >= 0:
        to_start = min(to_start, seen * divide(values[0], growth))
    gap = seen / gaps
    near = gap * 1.1
    reach = seen + (to_start if to_start < near else gap / 2) + (to_end if to_end < near else gap / 2)
    return growth * divide(reach, seen)


def _increase(times: Times, values: Values, span: Range) -> float | None:
    return _extrapolated(times, values, span, counter=True)


def _delta(times: Times, values: Values, span: Range) -> float | None:
    return _extrapolated(times, values, span, counter=False)


def _rate(times: Times, values: Values, span: Range) -> float | None:
    growth = _extrapolated(times, values, span, counter=True)
    return None if growth is None else growth / ((span.end - span.start) / 1000)


def _irate(times: Times, values: Values, span: Range) -> float | None:
    if len(values) < 2 or times[-1] == times[-2]:
        return None
    reset = values[-1] < values[-2]
    growth = values[-1] if reset else values[-1] - values[-2]
    return growth / ((times[-1] - times[-2]) / 1000)


def _idelta(times: Times, values: Values, span: Range) -> float | None:
    return values[-1] - values[-2] if len(values) >= 2 and times[-1] != times[-2] else None


def _resets(times: Times, values: Values, span: Range) -> float:
    return float(sum(now < before for before, now in pairwise(values)))


def _changes(times: Times, values: Values, span: Range) -> float:
    return float(sum(now != before and (now == now or before == before) for before, now in pairwise(values)))


def _deriv(times: Times, values: Values, span: Range) -> float | None:
    """Slope of the least-squares line, per second."""
    if len(values) < 2:
        return None
    if all(value == values[0] for value in values):
        return NAN if math.isinf(values[0]) else 0.0
    xs = [(time - times[0]) / 1000 for time in times]
    count = len(values)
    # Not compensated_sum: an infinite term must give NaN here, as it does in Prometheus.
    sum_x, sum_y = _strict_sum(xs), _strict_sum(values)
    sum_xy = _strict_sum([x * y for x, y in zip(xs, values, strict=True)])
    sum_xx = _strict_sum([x * x for x in xs])
    return divide(sum_xy - sum_x * sum_y / count, sum_xx - sum_x * sum_x / count)


def _strict_sum(values: Values) -> float:
    total = lost = 0.0
    for value in values:
        total, lost = add_compensated(value, total, lost)
    return total + lost


def _avg(times: Times, values: Values, span: Range) -> float:
    mean = lost = 0.0
    for count, value in enumerate(values, 1):
        if not mean_absorbs(mean, value):
            mean, lost = add_compensated(value / count - mean / count, mean, lost)
    return mean if math.isinf(mean) else mean + lost


def _min(times: Times, values: Values, span: Range) -> float:
    return min((value for value in values if value == value), default=NAN)


def _max(times: Times, values: Values, span: Range) -> float:
    return max((value for value in values if value == value), default=NAN)


def _stdvar(times: Times, values: Values, span: Range) -> float:
    """Population variance by Welford's running sums, compensated."""
    mean = mean_lost = squares = squares_lost = 0.0
    for count, value in enumerate(values, 1):
        step = value - (mean + mean_lost)
        mean, mean_lost = add_compensated(step / count, mean, mean_lost)
        squares, squares_lost = add_compensated(step * (value - (mean + mean_lost)), squares, squares_lost)
    return (squares + squares_lost) / len(values)


RANGE_FUNCTIONS: Mapping[str, RangeFunction] = {
    "rate": _rate,
    "increase": _increase,
    "delta": _delta,
    "irate": _irate,
    "idelta": _idelta,
    "resets": _resets,
    "changes": _changes,
    "deriv": _deriv,
    "avg_over_time": _avg,
    "min_over_time": _min,
    "max_over_time": _max,
    "sum_over_time": lambda times, values, span: compensated_sum(values),
    "count_over_time": lambda times, values, span: float(len(values)),
    "last_over_time": lambda times, values, span: values[-1],
    "present_over_time": lambda times, values, span: 1.0,
    "quantile_over_time": lambda times, values, span: quantile(span.scalar, values),
    "stddev_over_time": lambda times, values, span: square_root(_stdvar(times, values, span)),
    "stdvar_over_time": _stdvar,
}
