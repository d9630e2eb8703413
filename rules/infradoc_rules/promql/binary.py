"""Binary operators between scalars and vectors, with Prometheus' vector matching."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from infradoc_rules.promql import arithmetic as go
from infradoc_rules.promql.errors import PromqlError
from infradoc_rules.promql.nodes import Binary, Matching
from infradoc_rules.promql.vector import NAME, Sample, Vector, all_labels, from_labels, get_label, show, unique

Key = object

ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": go.divide,
    "%": go.modulo,
    "^": go.power,
}
COMPARISON: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}


def scalar_scalar(op: str, left: float, right: float) -> float:
    """Two scalars; a comparison (the grammar demands `bool`) gives 0 or 1."""
    return ARITHMETIC[op](left, right) if op in ARITHMETIC else float(COMPARISON[op](left, right))


def vector_scalar(node: Binary, vector: Vector, scalar: float, scalar_left: bool) -> Vector:
    """A vector with a scalar: arithmetic and `bool` drop the metric name, a plain comparison filters."""
    if node.op in ARITHMETIC or node.bool_modifier:
        compute = ARITHMETIC.get(node.op) or COMPARISON[node.op]
        pairs = ((scalar, s.value) if scalar_left else (s.value, scalar) for s in vector)
        return unique([Sample("", s.labels, float(compute(*pair))) for s, pair in zip(vector, pairs, strict=True)])
    keeps = COMPARISON[node.op]
    return [s for s in vector if (keeps(scalar, s.value) if scalar_left else keeps(s.value, scalar))]


def vector_vector(node: Binary, left: Vector, right: Vector) -> Vector:
    """Two vectors. Raises PromqlError for many-to-many matching and for matches that are not unique."""
    match node.op:
        case "and":
            keys = _keys(right, node.matching)
            return [s for s in left if _key(s, node.matching) in keys]
        case "unless":
            keys = _keys(right, node.matching)
            return [s for s in left if _key(s, node.matching) not in keys]
        case "or":
            keys = _keys(left, node.matching)
            return left + [s for s in right if _key(s, node.matching) not in keys]
    return _joined(node, left, right) if left and right else []


def _key(sample: Sample, matching: Matching) -> Key:
    """What samples must share to match."""
    if matching.on:
        return tuple([get_label(sample, label) for label in matching.labels])
    if not matching.labels:
        return frozenset(sample.labels.items())
    return frozenset(item for item in sample.labels.items() if item[0] not in matching.labels)


def _keys(vector: Vector, matching: Matching) -> set[Key]:
    return {_key(sample, matching) for sample in vector}


def _joined(node: Binary, left: Vector, right: Vector) -> Vector:
    """Arithmetic and comparisons: each sample of the "many" side with its partner on the "one" side."""
    swapped = node.matching.cardinality == "one-to-many"
    many, one = (right, left) if swapped else (left, right)
    partners = _partners(node, one, "left" if swapped else "right")
    seen: set[Key] = set()
    result: Vector = []
    for sample in many:
        key = _key(sample, node.matching)
        partner = partners.get(key)
        if partner is None:
            continue
        pair = (partner.value, sample.value) if swapped else (sample.value, partner.value)
        value = _pair_value(node, *pair)
        if value is None:
            continue
        joined = _result_sample(node, sample, partner, value)
        _check_once(node, seen, key, sample, joined)
        result.append(joined)
    return unique(result)


def _partners(node: Binary, one: Vector, side: str) -> dict[Key, Sample]:
    partners: dict[Key, Sample] = {}
    for sample in one:
        key = _key(sample, node.matching)
        other = partners.setdefault(key, sample)
        if other is not sample:
            raise PromqlError(
                f"found duplicate series for the match group {_group_text(sample, node.matching)} on the {side}"
                f" hand-side of {node.op}: {show(*other[:2])} and {show(*sample[:2])};"
                " many-to-many matching not allowed: matching labels must be unique on one side"
            )
    return partners


def _pair_value(node: Binary, left: float, right: float) -> float | None:
    """The value of a matched pair, None when a comparison filters it out."""
    if node.op in ARITHMETIC:
        return ARITHMETIC[node.op](left, right)
    holds = COMPARISON[node.op](left, right)
    if node.bool_modifier:
        return float(holds)
    return left if holds else None


def _result_sample(node: Binary, many: Sample, one: Sample, value: float) -> Sample:
    """Labels of the result: those of the "many" side, cut to the matching labels when it is one-to-one."""
    matching = node.matching
    if matching.cardinality == "one-to-one" and not matching.on and not matching.labels:
        keep_name = node.op in COMPARISON and not node.bool_modifier
        return Sample(many.name if keep_name else "", many.labels, value)
    labels = all_labels(many)
    if node.op in ARITHMETIC:
        labels.pop(NAME, None)
    if matching.cardinality == "one-to-one":
        labels = {key: text for key, text in labels.items() if (key in matching.labels) == matching.on}
    for label in matching.include:
        labels[label] = get_label(one, label)
    if node.bool_modifier:
        labels.pop(NAME, None)
    return from_labels(labels, value)


def _check_once(node: Binary, seen: set[Key], key: Key, sample: Sample, joined: Sample) -> None:
    """Each match group once, or, with group_left and group_right, each result of it once."""
    grouped = node.matching.cardinality != "one-to-one"
    mark: Key = (key, joined.name, frozenset(joined.labels.items())) if grouped else key
    if mark in seen:
        advice = (
            "grouping labels must ensure unique matches"
            if grouped
            else "many-to-one matching must be explicit (group_left/group_right)"
        )
        group = _group_text(sample, node.matching)
        raise PromqlError(f"multiple matches for labels {group} at {node.op}: {advice}")
    seen.add(mark)


def _group_text(sample: Sample, matching: Matching) -> str:
    labels = all_labels(sample) if matching.on else sample.labels
    return show("", {key: text for key, text in labels.items() if (key in matching.labels) == matching.on})
