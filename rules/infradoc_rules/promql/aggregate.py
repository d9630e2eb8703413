"""Aggregations: group the samples of a vector by labels, then one number (or the top few samples) per group."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial

from infradoc_rules.promql.arithmetic import mean_absorbs, quantile, square_root
from infradoc_rules.promql.errors import PromqlError
from infradoc_rules.promql.functions import ordered
from infradoc_rules.promql.nodes import Aggregate
from infradoc_rules.promql.vector import NAME, Labels, Sample, Vector, all_labels, from_labels, get_label

Values = list[float]


def aggregate(node: Aggregate, vector: Vector, param: float | str) -> Vector:
    """Evaluate `node` over `vector`; `param` is the k, the quantile or the label name, if the operator has one.

    Raises PromqlError for a k that is no 64-bit integer.
    """
    if node.op in ("topk", "bottomk"):
        return _select_k(node, vector, param)
    if node.op == "count_values":
        return _count_values(node, vector, str(param))
    function = partial(quantile, float(param)) if node.op == "quantile" else _REDUCE[node.op]
    groups = _groups(vector, node.grouping, node.without)
    return [from_labels(labels, function([member.value for member in members])) for labels, members in groups]


def _groups(vector: Vector, grouping: tuple[str, ...], without: bool) -> list[tuple[dict[str, str], Vector]]:
    """Labels of each group (a new dict) with its members, in order of first appearance."""
    if not vector:
        return []
    if not grouping and not without:
        return [({}, vector)]
    found: dict[object, tuple[dict[str, str], Vector]] = {}
    for sample in vector:
        key = _group_key(sample, grouping, without)
        group = found.get(key)
        if group is None:
            group = found[key] = (_group_labels(sample, grouping, without), [])
        group[1].append(sample)
    return list(found.values())


def _group_key(sample: Sample, grouping: tuple[str, ...], without: bool) -> object:
    """Equal for samples of one group: cheaper than the labels of the group, which are needed once."""
    if without:
        return frozenset(item for item in sample.labels.items() if item[0] not in grouping)
    return tuple([get_label(sample, label) for label in grouping])


def _group_labels(sample: Sample, grouping: tuple[str, ...], without: bool) -> dict[str, str]:
    labels = sample.labels
    if without:
        return {key: text for key, text in labels.items() if key not in grouping}
    have: Labels = all_labels(sample) if NAME in grouping else labels
    return {key: have[key] for key in grouping if key in have}


def _mean(values: Values) -> float:
    mean = values[0]
    for count, value in enumerate(values[1:], 2):
        if not mean_absorbs(mean, value):
            mean += value / count - mean / count
    return mean


def _sum(values: Values) -> float:
    total = values[0]
    for value in values[1:]:  # one by one: from Python 3.12 on the built-in sum compensates, Prometheus 2.42 does not
        total += value
    return total


def _variance(values: Values) -> float:
    """Population variance by Welford. One value alone has none, even when it is NaN."""
    mean, squares = values[0], 0.0
    for count, value in enumerate(values[1:], 2):
        step = value - mean
        mean += step / count
        squares += step * (value - mean)
    return squares / len(values)


_REDUCE: Mapping[str, Callable[[Values], float]] = {
    "sum": _sum,
    "avg": _mean,
    "min": lambda values: min((value for value in values if value == value), default=math.nan),
    "max": lambda values: max((value for value in values if value == value), default=math.nan),
    "count": lambda values: float(len(values)),
    "group": lambda values: 1.0,
    "stddev": lambda values: square_root(_variance(values)),
    "stdvar": _variance,
}


def _select_k(node: Aggregate, vector: Vector, param: float | str) -> Vector:
    """The k largest or smallest samples of each group with their own labels. Of equal values the earlier ones."""
    number = float(param)
    if not -(2.0**63) <= number < 2.0**63:
        raise PromqlError(f"{node.op}: k must be a 64-bit integer, got {number}")
    count = math.trunc(number)
    if count < 1:
        return []
    chosen: Vector = []
    for _, members in _groups(vector, node.grouping, node.without):
        chosen += ordered(members, descending=node.op == "topk")[:count]
    return chosen


def _count_values(node: Aggregate, vector: Vector, label: str) -> Vector:
    """How often each value occurs, the value as a label."""
    labelled = [from_labels({**all_labels(s), label: format_value(s.value)}, s.value) for s in vector]
    grouping = node.grouping if node.without or label in node.grouping else (*node.grouping, label)
    groups = _groups(labelled, grouping, node.without)
    return [from_labels(labels, float(len(members))) for labels, members in groups]


def format_value(value: float) -> str:
    """The shortest digits that give `value` back, without an exponent, as Go formats with 'f' and -1."""
    if not math.isfinite(value):
        return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
    digits = format(Decimal(repr(value)), "f")
    return digits.rstrip("0").rstrip(".") if "." in digits else digits
