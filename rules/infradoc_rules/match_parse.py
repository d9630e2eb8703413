"""Conditions over events and facts, for post-mortems: a small expression language that is safe to evaluate.

The text is parsed by Python's own parser and then only a closed list of node types is accepted; nothing is ever
executed. What cannot be known is `UNKNOWN` (three-valued logic), never false:

    count(preempted, phase="serving") >= 3
    last(kv_budget).available_bytes < last(kv_budget).needed_bytes
    before(graph_capture, cuda_oom) and fact("enforce_eager") == False
    exists(request_rejected_length, tokens >= 100)
    total(preempted.count) > 10
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import lru_cache

from infradoc_rules.model import Value

MAX_TEXT = 2000
MAX_NODES = 300


_EVENT_CALLS = ("count", "exists", "last", "first", "total")
_CALLS = (*_EVENT_CALLS, "before", "fact", "known")
COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)
OWN_FIELDS = ("phase", "order", "time", "text")


# A field may be called `from`, which Python's parser keeps for itself: it gets a bar behind while the text is parsed.
_FROM = re.compile(r"""("[^"]*"|'[^']*')|\bfrom(?=\s*[=<>!])""")


class MatchError(ValueError):
    """A match text outside the language; the message says what and at which character."""


@dataclass(frozen=True)
class MatchExpr:
    """A checked match text. `events` and `fields` (event, field) and `facts` are the names it uses."""

    text: str
    tree: ast.expr
    events: frozenset[str]
    fields: frozenset[tuple[str, str]]
    facts: frozenset[str]


@lru_cache(maxsize=1024)
def parse_match(text: str) -> MatchExpr:
    """Check `text` (thresholds already filled in) and list what it needs. Raises MatchError."""
    if len(text) > MAX_TEXT:
        raise MatchError(f"match text is longer than {MAX_TEXT} characters")
    try:
        tree = ast.parse(_FROM.sub(lambda found: found[1] or "from_", text.strip()), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place = f" at character {error.offset}" if isinstance(error, SyntaxError) and error.offset else ""
        raise MatchError(f"not an expression{place}: {text!r}") from error
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        raise MatchError(f"match text has more than {MAX_NODES} parts")
    check = _Check(text)
    check.value(tree)
    return MatchExpr(text, tree, frozenset(check.events), frozenset(check.fields), frozenset(check.facts))


class _Check:
    """Accepts the closed list of node types and collects the names used."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.events: set[str] = set()
        self.fields: set[tuple[str, str]] = set()
        self.facts: set[str] = set()

    def value(self, node: ast.expr) -> None:
        match node:
            case ast.Constant(value=bool() | int() | float() | str()):
                return
            case ast.BoolOp():
                parts: list[ast.expr] = node.values
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
                parts = [operand]
            case ast.BinOp() if isinstance(node.op, ARITHMETIC):
                parts = [node.left, node.right]
            case ast.Compare() if all(isinstance(op, COMPARISONS) for op in node.ops):
                parts = [node.left, *node.comparators]
            case ast.Call():
                return self._call(node)
            case ast.Attribute(value=ast.Call(func=ast.Name(id="last" | "first")) as call, attr=attr):
                self._call(call)
                self.fields.add((_event_of(call), attr))
                return
            case _:
                raise self._error(node, f"{type(node).__name__} is outside the match language")
        for part in parts:
            self.value(part)

    def _call(self, node: ast.Call) -> None:
        if not isinstance(node.func, ast.Name) or node.func.id not in _CALLS:
            raise self._error(node, f"only these calls are known: {', '.join(_CALLS)}")
        name = node.func.id
        if name in ("fact", "known"):
            return self._fact(node)
        if name == "before":
            if len(node.args) != 2 or node.keywords or not all(isinstance(arg, ast.Name) for arg in node.args):
                raise self._error(node, "before() takes two event names")
            self.events.update(arg.id for arg in node.args if isinstance(arg, ast.Name))
            return
        self._event_call(node, name)

    def _fact(self, node: ast.Call) -> None:
        match node.args:
            case [ast.Constant(value=str() as name)] if not node.keywords:
                self.facts.add(name)
            case _:
                raise self._error(node, 'fact() and known() take one name in quotes, such as fact("max_num_seqs")')

    def _event_call(self, node: ast.Call, name: str) -> None:
        if not node.args:
            raise self._error(node, f"{name}() needs an event name")
        subject = node.args[0]
        if name == "total":
            if not (isinstance(subject, ast.Attribute) and isinstance(subject.value, ast.Name)):
                raise self._error(node, "total() needs event.field, such as total(preempted.count)")
            event = subject.value.id
            self.fields.add((event, subject.attr))
        elif isinstance(subject, ast.Name):
            event = subject.id
        else:
            raise self._error(node, f"{name}() needs an event name first")
        self.events.add(event)
        for keyword in node.keywords:
            if keyword.arg is None or not isinstance(keyword.value, ast.Constant):
                raise self._error(node, 'filters are field="text" or field >= number')
            self.fields.add((event, field_name(keyword.arg)))
        for filter_node in node.args[1:]:
            self.fields.add((event, filter_parts(filter_node, self)[0]))

    def _error(self, node: ast.expr, message: str) -> MatchError:
        return MatchError(f"{message} (character {node.col_offset + 1} of {self.text!r})")


def field_name(name: str) -> str:
    """A field's name as it stands in the text."""
    return "from" if name == "from_" else name


def _event_of(call: ast.Call) -> str:
    subject = call.args[0]
    assert isinstance(subject, ast.Name)  # _call has checked it
    return subject.id


def filter_parts(node: ast.expr, check: _Check | None = None) -> tuple[str, type[ast.cmpop], Value]:
    """(field, comparison, value) of a filter such as `tokens >= 100`. Raises MatchError for anything else."""
    match node:
        case ast.Compare(left=ast.Name(id=name), ops=[op], comparators=[ast.Constant(value=value)]):
            if isinstance(op, COMPARISONS) and isinstance(value, bool | int | float | str):
                return field_name(name), type(op), value
    where = "" if check is None else f" (character {node.col_offset + 1} of {check.text!r})"
    raise MatchError(f'a filter is field="text" or field >= number{where}')
