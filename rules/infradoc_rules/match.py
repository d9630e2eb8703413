"""Evaluation of match texts on a frame's events and facts, in three-valued logic. The language: `match_parse`."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, TypeGuard

from infradoc_rules.match_parse import (
    OWN_FIELDS,
    MatchError,
    MatchExpr,
    field_name,
    filter_parts,
    parse_match,
)
from infradoc_rules.model import Event, Fact, SignalFrame, Value
from infradoc_rules.values import number


class Unknown:
    """The third truth value: what was asked for is not there to be looked at."""

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN: Final = Unknown()
Result = Value | Unknown

_COMPARE: Mapping[type[ast.cmpop], Callable[[object, object], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,  # type: ignore[dict-item]
    ast.LtE: operator.le,  # type: ignore[dict-item]
    ast.Gt: operator.gt,  # type: ignore[dict-item]
    ast.GtE: operator.ge,  # type: ignore[dict-item]
}
_ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: _divide(left, right),
}


def evaluate_match(expr: MatchExpr, frame: SignalFrame) -> Result:
    """The value of `expr` on the frame's events and facts; UNKNOWN where they do not say."""
    return _Run(frame.events, frame.facts).value(expr.tree)


def leading_value(expr: MatchExpr, frame: SignalFrame) -> float | None:
    """The number on the left of a comparison (or the whole value), as evidence; None when it is no known number."""
    tree = expr.tree.left if isinstance(expr.tree, ast.Compare) else expr.tree
    return number(_Run(frame.events, frame.facts).value(tree))


def value_of(node: ast.expr, frame: SignalFrame) -> Result:
    """The value of one part of a checked tree."""
    return _Run(frame.events, frame.facts).value(node)


def source_of(events: Collection[str], facts: Collection[str], frame: SignalFrame) -> str | None:
    """The last line that one of the events came from; without events the line that a fact was read or derived from."""
    for event in reversed(frame.events) if events else ():
        if event.name in events and event.source:
            return event.source
    held = (frame.facts[name].source for name in sorted(facts) if name in frame.facts)
    return next((source for source in held if source), None)


def truth(result: Result) -> bool | None:
    """A result as a condition: None for unknown; NaN is false."""
    if isinstance(result, Unknown):
        return None
    return bool(result) and not (isinstance(result, float) and math.isnan(result))


class _Run:
    """Evaluates a checked tree with three-valued logic."""

    def __init__(self, events: Sequence[Event], facts: Mapping[str, Fact]) -> None:
        self.events = events
        self.facts = facts

    def value(self, node: ast.expr) -> Result:
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as value):
                return value
            case ast.BoolOp(op=ast.And()):
                return self._all(node.values)
            case ast.BoolOp():
                return self._any(node.values)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                known = truth(self.value(operand))
                return UNKNOWN if known is None else not known
            case ast.UnaryOp(operand=operand):
                number = self.value(operand)
                return -number if _is_number(number) else UNKNOWN
            case ast.BinOp(left=left, op=op, right=right):
                return _arithmetic(type(op), self.value(left), self.value(right))
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._chain(self.value(left), [type(op) for op in ops], comparators)
            case ast.Attribute(value=ast.Call() as call, attr=attr):
                return self._field(call, attr)
            case ast.Call(func=ast.Name(id=name)):
                return self._call(node, name)
        raise MatchError(f"cannot evaluate {type(node).__name__}")

    def _all(self, nodes: Sequence[ast.expr]) -> Result:
        seen = [truth(self.value(node)) for node in nodes]
        return False if False in seen else UNKNOWN if None in seen else True

    def _any(self, nodes: Sequence[ast.expr]) -> Result:
        seen = [truth(self.value(node)) for node in nodes]
        return True if True in seen else UNKNOWN if None in seen else False

    def _chain(self, left: Result, ops: Sequence[type[ast.cmpop]], nodes: Sequence[ast.expr]) -> Result:
        unknown = False
        for op, node in zip(ops, nodes, strict=True):
            right = self.value(node)
            outcome = _compare(op, left, right)
            if outcome is False:
                return False
            unknown = unknown or outcome is None
            left = right
        return UNKNOWN if unknown else True

    def _call(self, node: ast.Call, name: str) -> Result:
        if name in ("fact", "known"):
            fact = self.facts.get(str(node.args[0].value))  # type: ignore[attr-defined]
            if name == "known":
                return fact is not None
            return UNKNOWN if fact is None else fact.value
        if not self.events:
            return UNKNOWN  # nothing was read, so nothing can be said to be absent
        if name == "before":
            first, second = (arg.id for arg in node.args)  # type: ignore[attr-defined]
            return self._before(first, second)
        if name == "count":
            return sum(event.repeat for event in self._matching(node))
        if name == "exists":
            return any(True for _ in self._matching(node))
        if name == "total":
            return self._total(node)
        return any(True for _ in self._matching(node)) or UNKNOWN  # a bare last() or first()

    def _before(self, first: str, second: str) -> Result:
        firsts = [event.order for event in self.events if event.name == first]
        seconds = [event.order for event in self.events if event.name == second]
        return bool(firsts) and bool(seconds) and min(firsts) < max(seconds)

    def _total(self, node: ast.Call) -> Result:
        field = node.args[0].attr  # type: ignore[attr-defined]
        rows = [(event.fields.get(field), event.repeat) for event in self._matching(node)]
        numbers = [value * repeat for value, repeat in rows if _is_number(value)]
        return UNKNOWN if rows and not numbers else float(sum(numbers))

    def _field(self, call: ast.Call, attr: str) -> Result:
        found = list(self._matching(call))
        if not found:
            return UNKNOWN
        event = found[-1] if isinstance(call.func, ast.Name) and call.func.id == "last" else found[0]
        value = getattr(event, attr) if attr in OWN_FIELDS else event.fields.get(attr)
        return UNKNOWN if value is None else value

    def _matching(self, node: ast.Call) -> Iterator[Event]:
        subject = node.args[0]
        name = subject.value.id if isinstance(subject, ast.Attribute) else subject.id  # type: ignore[attr-defined]
        tests = [filter_parts(filter_node) for filter_node in node.args[1:]]
        tests += [(field_name(str(word.arg)), ast.Eq, word.value.value) for word in node.keywords]  # type: ignore[attr-defined]
        for event in self.events:
            if event.name == name and all(_passes(event, test) for test in tests):
                yield event


def _passes(event: Event, test: tuple[str, type[ast.cmpop], Value]) -> bool:
    field, op, wanted = test
    value = getattr(event, field) if field in OWN_FIELDS else event.fields.get(field)
    return value is not None and _compare(op, value, wanted) is True


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _compare(op: type[ast.cmpop], left: Result, right: Result) -> bool | None:
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        return None
    if isinstance(left, str) != isinstance(right, str):
        return None  # a text against a number says nothing either way
    return _COMPARE[op](left, right)


def _arithmetic(op: type[ast.operator], left: Result, right: Result) -> Result:
    if not _is_number(left) or not _is_number(right):
        return UNKNOWN
    try:
        return _ARITHMETIC[op](left, right)
    except OverflowError:
        return UNKNOWN


def _divide(left: float, right: float) -> float:
    """As in PromQL: x/0 is infinite for x > 0, 0/0 is NaN."""
    if right == 0:
        return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left)
    return left / right


__all__ = [
    "OWN_FIELDS",
    "UNKNOWN",
    "MatchError",
    "MatchExpr",
    "Result",
    "Unknown",
    "evaluate_match",
    "leading_value",
    "parse_match",
    "source_of",
    "truth",
    "value_of",
]
