"""Which condition of a branch held and which failed, with the value that decided it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from infradoc_rules.conditions import Variables, judge_sign, largest
from infradoc_rules.match import MatchExpr, Result, Unknown, evaluate_match, source_of, truth, value_of
from infradoc_rules.model import SignalFrame, Value
from infradoc_rules.promql import Expr, PromqlError
from infradoc_rules.promql.nodes import Binary, Number, type_of
from infradoc_rules.schema import Condition

# Held by every incident of a whole area: alone they make no diagnosis likely.
_GENERAL = frozenset(
    {
        "cuda_oom",
        "start.failed",
        "start.ready",
        "oom.at_start",
        "oom.count_distinct",
        "worker_died",
        "traceback",
        "serving.moves",
        "serving.running_median",
        "serving.waiting_median",
        "slots.most_busy",
        "step_line",
        "stats_line",
        "request_finished",
    }
)
_COMPARES: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


@dataclass(frozen=True, slots=True)
class Part:
    """One condition after it was looked at.

    holds: None where it cannot be known. fact, event: the one name that the deciding comparison asks for, if it is one.
    value: what it was; `op` and `limit`: what it is compared with. telling: whether it holds for few incidents only.
    plain: whether the comparison is the whole condition, so that its text can be filled with `value`.
    """

    condition: Condition
    holds: bool | None
    fact: str | None = None
    event: str | None = None
    value: Value | None = None
    op: str = ""
    limit: Value | None = None
    source: str | None = None
    telling: float = 0.0
    plain: bool = False

    @property
    def numeric(self) -> bool:
        """Whether a number was compared with a number."""
        return _is_number(self.value) and _is_number(self.limit)


def match_part(condition: Condition, frame: SignalFrame, names: Mapping[str, float]) -> Part:
    """A condition over events and facts."""
    expr = Variables.of(names).match(condition.match or "")
    holds = truth(evaluate_match(expr, frame))
    leaf, wanted = _deciding(expr.tree, frame, holds, True)
    fact, event = _name(leaf)
    value, op, limit = _compared(leaf, frame)
    place = _place(leaf, expr, frame)
    telling = _telling(leaf, wanted) if holds else 0.0
    return Part(condition, holds, fact, event, value, op, limit, place, telling, leaf is expr.tree)


def live_part(condition: Condition, frame: SignalFrame, names: Mapping[str, float]) -> Part:
    """A condition over series; the value is that of the left side of its comparison."""
    outcome = judge_sign(condition, frame, names)
    if outcome.holds:
        return Part(condition, True, value=outcome.readings[0].value, telling=1.0, plain=True)
    if outcome.holds is None:
        return Part(condition, None)
    expr = Variables.of(names).expression(condition.expr or "")
    return _failed_expression(condition, expr, frame)


def _failed_expression(condition: Condition, expr: Expr, frame: SignalFrame) -> Part:
    root = expr.root
    if not isinstance(root, Binary) or root.op not in _COMPARES.values() or not isinstance(root.right, Number):
        return Part(condition, False)
    if type_of(root.left) != "vector":
        return Part(condition, False)
    try:
        value = largest(Expr(expr.text, root.left, expr.variables, expr.window_open), frame)
    except PromqlError:  # a value that cannot be had is not shown; the condition has failed all the same
        value = None
    return Part(condition, False, value=value, op=root.op, limit=root.right.value, plain=True)


def _deciding(node: ast.expr, frame: SignalFrame, holds: bool | None, wanted: bool) -> tuple[ast.expr, bool]:
    """The comparison or call that makes `node` what it is, and whether it was wanted to be true."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _deciding(node.operand, frame, None if holds is None else not holds, not wanted)
    if isinstance(node, ast.BoolOp):
        for operand in node.values:
            if truth(value_of(operand, frame)) is holds:
                return _deciding(operand, frame, holds, wanted)
    return node, wanted


def _compared(node: ast.expr, frame: SignalFrame) -> tuple[Value | None, str, Value | None]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = value_of(node.left, frame), value_of(node.comparators[0], frame)
        return _known(left), _COMPARES[type(node.ops[0])], _known(right)
    return _known(value_of(node, frame)), "", None


def _known(result: Result) -> Value | None:
    return None if isinstance(result, Unknown) else result


def _name(node: ast.expr) -> tuple[str | None, str | None]:
    """The fact or the event that the left side is, where it is one alone."""
    left = node.left if isinstance(node, ast.Compare) else node
    match left:
        case ast.Call(func=ast.Name(id="fact"), args=[ast.Constant(value=str() as name)]):
            return name, None
        case ast.Call(func=ast.Name(id="exists" | "count"), args=[ast.Name(id=name)], keywords=[]):
            return None, name
    return None, None


def _telling(node: ast.expr, wanted: bool) -> float:
    """1 for a comparison that few incidents meet, less for one that many do, 0 for one that asks for an absence."""
    if not wanted:
        return 0.0
    if isinstance(node, ast.Compare):
        op, right = node.ops[0], node.comparators[0]
        constant = right.value if isinstance(right, ast.Constant) else None
        if isinstance(op, ast.Lt | ast.LtE | ast.NotEq) or constant is False or constant == "":
            return 0.0
        if constant == 0 and isinstance(op, ast.Gt | ast.GtE | ast.Eq):
            return 0.0  # asks for nothing: such a condition is there for its text
    general = any(name in _GENERAL for name in _names(node))
    return 0.3 if general else 1.0


def _names(node: ast.expr) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value
        elif isinstance(inner, ast.Name):
            yield inner.id


def _place(node: ast.expr, expr: MatchExpr, frame: SignalFrame) -> str | None:
    names = set(_names(node))
    return source_of(expr.events & names, expr.facts & names, frame)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
