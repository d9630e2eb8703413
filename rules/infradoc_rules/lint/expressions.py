"""Checks of the PromQL and match texts in a rule: names, labels, fields, variables."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from infradoc_rules.conditions import filled_match
from infradoc_rules.knobs import knob_table
from infradoc_rules.lint.labels import TARGET_LABELS, hopeless_matches
from infradoc_rules.match import OWN_FIELDS, MatchError, MatchExpr, parse_match
from infradoc_rules.near import near
from infradoc_rules.promql import Expr, PromqlError, parse
from infradoc_rules.promql.nodes import Aggregate, Binary, Call, Node, Selector, children
from infradoc_rules.signals import signal_table
from infradoc_rules.views import VIEW_NAMES

_LITERAL_RANGE = re.compile(r"\[\s*\d+\s*(?:ms|[smhdwy])")
_COMPARISONS = frozenset({"==", "!=", ">", "<", ">=", "<="})
_EXTRA_LABELS = TARGET_LABELS | {"le", "pid", "method"}


def promql_problems(text: str, names: Mapping[str, float], condition: bool) -> Iterator[str]:
    """What is wrong with one PromQL text. `condition`: it decides something, so it must be able to be false."""
    try:
        expr = parse(text, names)
    except PromqlError as error:
        yield str(error)
        return
    if _LITERAL_RANGE.search(text):
        yield f"a range in {text!r} is a fixed time; use $window, $mid, $long or a threshold"
    yield from _name_problems(expr)
    yield from hopeless_matches(expr.root)
    if condition and not _can_be_false(expr.root):
        yield f"{text!r} holds whenever there is data: compare it with something"
    if condition and any(isinstance(node, Binary) and node.bool_modifier for node in expr.walk()):
        yield f"{text!r} uses bool: its result 0 would count as true"


def match_problems(text: str, names: Mapping[str, float]) -> Iterator[str]:
    """What is wrong with one match text."""
    try:
        expr = parse_match(filled_match(text, names))
    except MatchError as error:
        yield str(error)
        return
    yield from _event_problems(expr)
    for name in sorted(expr.facts):
        if name not in knob_table() and "." not in name:
            yield f"fact {name!r} is no knob{did_you_mean(name, knob_table().by_name)}; other facts have a dotted name"


def did_you_mean(name: str, known: Collection[str]) -> str:
    """`; did you mean X?`, or nothing when none is near."""
    meant = near(name, known)
    return f"; did you mean {meant}?" if meant else ""


def _name_problems(expr: Expr) -> Iterator[str]:
    table = signal_table()
    for node in expr.walk():
        if isinstance(node, Selector):
            spec = table.resolve(node.name)
            if spec is None:
                hint = _histogram_hint(node.name) or did_you_mean(node.name, table.series_names())
                yield f"signal {node.name} is not in signals.yaml{hint}"
                continue
            allowed = _EXTRA_LABELS | set(spec.labels)
            for matcher in node.matchers:
                if matcher.label not in allowed:
                    yield f"{node.name} has no label {matcher.label}{did_you_mean(matcher.label, allowed)}"
                elif node.name in VIEW_NAMES:
                    yield from _view_problems(node.name, matcher.label, matcher.op, matcher.value)
        elif isinstance(node, Aggregate):
            yield from _grouping_problems(node)


def _histogram_hint(name: str) -> str:
    spec = signal_table().signals.get(name)
    return f"; it is a histogram, use {name}_bucket, _sum or _count" if spec is not None else ""


def _grouping_problems(node: Aggregate) -> Iterator[str]:
    allowed = set(_EXTRA_LABELS)
    for selector in _selectors(node.operand):
        spec = signal_table().resolve(selector.name)
        allowed |= set(spec.labels) if spec is not None else set()
    for label in node.grouping:
        if label not in allowed:
            yield f"{node.op} groups by {label}, which none of its series has{did_you_mean(label, allowed)}"


def _view_problems(name: str, label: str, op: str, value: str) -> Iterator[str]:
    if op != "=":
        return
    if label == "knob" and value not in knob_table():
        yield f"{name}: {value!r} is no knob{did_you_mean(value, knob_table().by_name)}"
    if label == "event" and value not in signal_table().events:
        yield f"{name}: {value!r} is no event{did_you_mean(value, signal_table().events)}"


def _event_problems(expr: MatchExpr) -> Iterator[str]:
    events = signal_table().events
    for name in sorted(expr.events):
        if name not in events:
            yield f"event {name} is not in signals.yaml{did_you_mean(name, events)}"
    for event, field in sorted(expr.fields):
        if event in events and field not in events[event].fields and field not in OWN_FIELDS:
            yield f"event {event} has no field {field}{did_you_mean(field, [*events[event].fields, *OWN_FIELDS])}"


def _selectors(node: Node) -> Iterator[Selector]:
    if isinstance(node, Selector):
        yield node
    for child in children(node):
        yield from _selectors(child)


def _can_be_false(node: Node) -> bool:
    match node:
        case Binary(op="or"):
            return _can_be_false(node.left) and _can_be_false(node.right)
        case Binary():
            return node.op in _COMPARISONS or node.op in ("and", "unless")
        case Call():
            return node.function in ("absent", "absent_over_time")
    return False
