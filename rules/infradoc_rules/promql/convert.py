"""promql-parser's objects to our nodes, so that evaluation never touches the Rust side."""

from __future__ import annotations

from datetime import timedelta
from functools import lru_cache
from typing import Any

import promql_parser as rust

from infradoc_rules.promql.nodes import (
    Aggregate,
    Binary,
    Call,
    Cardinality,
    Matcher,
    Matching,
    Negate,
    Node,
    Number,
    Selector,
    String,
    ValueType,
)
from infradoc_rules.promql.patterns import compiled, full_match_test, is_label_name
from infradoc_rules.promql.subset import SUBSET

_RETURNS: dict[str, ValueType] = {"time": "scalar", "scalar": "scalar"}
_CARDINALITY: dict[str, Cardinality] = {
    "OneToOne": "one-to-one",
    "ManyToOne": "many-to-one",
    "OneToMany": "one-to-many",
    "ManyToMany": "many-to-many",
}
_MATCH_OPS = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}


class OutsideSubset(Exception):
    """Valid PromQL that is not evaluated here. `word` is the token to blame."""

    def __init__(self, message: str, word: str) -> None:
        super().__init__(message)
        self.word = word


@lru_cache(maxsize=8192)
def _one_of(node: Node) -> Node:
    """The first node that was equal to this one: what is the same object is found without comparing trees."""
    return node


def convert(expr: Any) -> Node:
    """The node for a promql-parser expression. Raises OutsideSubset, or ValueError for a bad regex or label name."""
    return _one_of(_convert(expr))


def _convert(expr: Any) -> Node:
    match expr:
        case rust.NumberLiteral():
            return Number(float(expr.val))
        case rust.StringLiteral():
            return String(expr.val)
        case rust.ParenExpr():
            return convert(expr.expr)
        case rust.UnaryExpr():
            return Negate(convert(expr.expr))
        case rust.VectorSelector():
            return _selector(expr, None)
        case rust.MatrixSelector():
            return _selector(expr.vector_selector, _milliseconds(expr.range))
        case rust.Call():
            return _call(expr)
        case rust.AggregateExpr():
            return _aggregate(expr)
        case rust.BinaryExpr():
            return _binary(expr)
    raise OutsideSubset(f"{type(expr).__name__} is outside the subset", "")


def _milliseconds(delta: timedelta | None) -> int:
    return 0 if delta is None else round(delta / timedelta(milliseconds=1))


def _enum_name(value: Any) -> str:
    return str(value).rpartition(".")[2]


def _selector(expr: Any, range_ms: int | None) -> Selector:
    if expr.at is not None:
        raise OutsideSubset("the @ modifier is outside the subset", "@")
    if getattr(expr.matchers, "or_matchers", None):
        raise OutsideSubset("'or' between matchers is outside the subset", "or")
    name = expr.name
    matchers = []
    for matcher in expr.matchers.matchers:
        op = _MATCH_OPS[_enum_name(matcher.op)]
        if matcher.name == "__name__" and op == "=" and name is None:
            name = matcher.value
        elif matcher.name == "__name__":
            raise OutsideSubset("a pattern for the metric name is outside the subset: write the name", "__name__")
        else:
            matchers.append(_matcher(matcher.name, op, matcher.value))
    if not name:
        raise OutsideSubset("a selector without a metric name is outside the subset", "{")
    return Selector(name, tuple(matchers), range_ms, _milliseconds(expr.offset))


def _matcher(label: str, op: str, value: str) -> Matcher:
    match op:
        case "=":
            return Matcher(label, op, value, lambda have: have == value)
        case "!=":
            return Matcher(label, op, value, lambda have: have != value)
    test = full_match_test(value)
    return Matcher(label, op, value, test if op == "=~" else lambda have: not test(have))


def _call(expr: Any) -> Call:
    name = expr.func.name
    if name not in SUBSET.functions:
        raise OutsideSubset(f"function {name}() is outside the subset", name)
    args = tuple(convert(arg) for arg in expr.args)
    if name in SUBSET.label_functions:
        _check_label_arguments(name, [arg.value for arg in args if isinstance(arg, String)])
    return Call(name, args, _RETURNS.get(name, "vector"))


def _check_label_arguments(name: str, texts: list[str]) -> None:
    """Prometheus finds these faults only when it evaluates; lint wants them at once."""
    if name == "label_replace":
        compiled(texts[3])
        labels = texts[:1]
    else:
        labels = [texts[0], *texts[2:]]
    for label in labels:
        if not is_label_name(label):
            raise ValueError(f"invalid label name {label!r} in {name}()")


def _aggregate(expr: Any) -> Aggregate:
    op = str(expr.op)
    if op not in SUBSET.aggregations:
        raise OutsideSubset(f"aggregation {op} is outside the subset", op)
    param = None if expr.param is None else convert(expr.param)
    if isinstance(param, String) and not is_label_name(param.value):
        raise ValueError(f"invalid label name {param.value!r} in {op}()")
    without = expr.modifier is not None and _enum_name(expr.modifier.type) == "Without"
    grouping = () if expr.modifier is None else tuple(sorted(set(expr.modifier.labels)))
    return Aggregate(op, convert(expr.expr), param, grouping, without)


def _binary(expr: Any) -> Binary:
    op = str(expr.op)
    if op not in SUBSET.operators:
        raise OutsideSubset(f"operator {op} is outside the subset", op)
    left, right = convert(expr.lhs), convert(expr.rhs)
    modifier = expr.modifier
    if modifier is None:
        set_op = op in SUBSET.set_operators
        return Binary(op, left, right, matching=Matching("many-to-many" if set_op else "one-to-one"))
    fill = getattr(modifier, "fill_values", None)
    if fill is not None and (fill.lhs is not None or fill.rhs is not None):
        raise OutsideSubset("fill modifiers are outside the subset", "fill")
    on = modifier.matching is not None and _enum_name(modifier.matching.type) == "Include"
    labels = () if modifier.matching is None else tuple(sorted(set(modifier.matching.labels)))
    matching = Matching(_CARDINALITY[_enum_name(modifier.card)], on, labels, tuple(modifier.group_labels or ()))
    return Binary(op, left, right, bool(modifier.return_bool), matching)
