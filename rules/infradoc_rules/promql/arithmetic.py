"""Float arithmetic as Go does it: no exceptions, IEEE results; and the sums and quantiles that Prometheus uses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

NAN = math.nan
INF = math.inf


def divide(x: float, y: float) -> float:
    """x / y; x/0 is an infinity with the sign of both, 0/0 is NaN."""
    try:
        return x / y
    except ZeroDivisionError:
        if x == 0 or x != x:
            return NAN
        return math.copysign(INF, x) * math.copysign(1.0, y)


def modulo(x: float, y: float) -> float:
    """The remainder with the sign of x; NaN for y = 0 and for infinite x."""
    try:
        return math.fmod(x, y)
    except ValueError:
        return NAN


def power(x: float, y: float) -> float:
    """x to the power of y; overflow gives an infinity, a root of a negative number NaN."""
    odd = y == y and abs(y) < 2**53 and y % 2 == 1
    try:
        return math.pow(x, y)
    except OverflowError:
        return -INF if x < 0 and odd else INF
    except ValueError:
        if x != 0:
            return NAN
        return math.copysign(INF, x) if odd else INF  # zero to a negative power


def exp(x: float) -> float:
    """e to the power of x."""
    try:
        return math.exp(x)
    except OverflowError:
        return INF


def _logarithm(function: Callable[[float], float]) -> Callable[[float], float]:
    def log(x: float) -> float:
        if x > 0:
            return function(x)
        return -INF if x == 0 else NAN

    return log


ln = _logarithm(math.log)
log2 = _logarithm(math.log2)
log10 = _logarithm(math.log10)


def square_root(x: float) -> float:
    """The square root; NaN below zero."""
    return math.sqrt(x) if x >= 0 else NAN


def floor(x: float) -> float:
    """Round down, as a float; keeps NaN, infinities and the sign of zero."""
    return math.copysign(math.floor(x), x) if math.isfinite(x) else x


def ceil(x: float) -> float:
    """Round up, as a float; keeps NaN, infinities and the sign of zero."""
    return math.copysign(math.ceil(x), x) if math.isfinite(x) else x


def sign(x: float) -> float:
    """-1, 0 or 1; NaN for NaN."""
    return float((x > 0) - (x < 0)) if x == x and x != 0 else x


def smaller(x: float, y: float) -> float:
    """Go's math.Min: -Inf wins, then NaN."""
    if x == -INF or y == -INF:
        return -INF
    return NAN if x != x or y != y else min(x, y)


def larger(x: float, y: float) -> float:
    """Go's math.Max: +Inf wins, then NaN."""
    if x == INF or y == INF:
        return INF
    return NAN if x != x or y != y else max(x, y)


def add_compensated(term: float, total: float, lost: float) -> tuple[float, float]:
    """One step of a Kahan-Neumaier sum: the new total and the bits lost so far."""
    result = total + term
    if abs(total) >= abs(term):
        lost += (total - result) + term
    else:
        lost += (term - result) + total
    return result, lost


def compensated_sum(values: Iterable[float]) -> float:
    """A Kahan-Neumaier sum; an infinity stays one."""
    total = lost = 0.0
    for value in values:
        total, lost = add_compensated(value, total, lost)
    return total if math.isinf(total) else total + lost


def mean_absorbs(mean: float, value: float) -> bool:
    """Whether an infinite running mean stays as it is: the value is finite, or the same infinity."""
    return math.isinf(mean) and (mean == value or math.isfinite(value))


def quantile(q: float, values: Sequence[float]) -> float:
    """The q-quantile by linear interpolation between order statistics; NaN sorts first.

    -Inf for q < 0, +Inf for q > 1, NaN for a NaN q or no values.
    """
    if not values or q != q:
        return NAN
    if q < 0 or q > 1:
        return -INF if q < 0 else INF
    ordered = sorted(values, key=_nan_first)
    rank = q * (len(ordered) - 1)
    lower = math.floor(rank)
    upper = min(len(ordered) - 1, lower + 1)
    weight = rank - lower
    return ordered[lower] * (1 - weight) + ordered[upper] * weight


def _nan_first(value: float) -> tuple[bool, float]:
    return (value == value, value if value == value else 0.0)
