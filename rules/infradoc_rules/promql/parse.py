"""Text to syntax tree: promql-parser does the grammar and the types, this module keeps to the subset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import zip_longest

import promql_parser

from infradoc_rules.near import near
from infradoc_rules.promql.convert import OutsideSubset, convert
from infradoc_rules.promql.errors import PromqlError
from infradoc_rules.promql.locate import locate
from infradoc_rules.promql.nodes import Node, Selector, type_of, walk
from infradoc_rules.promql.selectors import LOOKBACK_MS
from infradoc_rules.promql.subset import SUBSET
from infradoc_rules.promql.tokens import Token, Variable, fill_in, filled, variables_in

WINDOW = "window"
_TRIAL_WINDOW = 10.0  # stands in for an open $window while an expression is only checked

# promql-parser recurses on the C stack and kills the process when it ends (400 operators in a row do, on a thread with
# 512 KB); evaluation recurses on Python's stack. Rules stay far below these limits.
MAX_TEXT = 20_000
MAX_BRACKETS = 60
MAX_OPERATORS = 100

_CALL_LIKE = SUBSET.aggregations | SUBSET.modifiers | SUBSET.set_operators

_OPERATORS = SUBSET.operators | {"atan2"}


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """A parsed expression. `window_open` says that `$window` was left for `evaluate` to fill in.

    Equal to itself alone, so that it can be looked up by without walking its tree; `parse` gives one object a text.
    """

    text: str
    root: Node = field(repr=False)
    variables: tuple[tuple[str, Variable], ...] = ()
    window_open: bool = False

    def selectors(self) -> Mapping[str, float]:
        """Every metric name needed, with the seconds of history before the evaluation time that it needs.

        With an open `$window` the seconds are those of a 10 s window.
        """
        return needed_history(self.root)

    def walk(self) -> Iterator[Node]:
        """All nodes, parents first."""
        return walk(self.root)

    def with_window(self, seconds: float) -> Expr:
        """The expression with an open `$window` filled in; itself when there is none. Cached."""
        if not self.window_open:
            return self
        return _parse(self.text, (*self.variables, (WINDOW, float(seconds))))

    def promql(self) -> str:
        """The text with its variables filled in, as Prometheus takes it. An open `$window` counts as 10 s."""
        return fill_in(self.text, {WINDOW: _TRIAL_WINDOW, **dict(self.variables)})


def parse(text: str, variables: Mapping[str, Variable] | None = None) -> Expr:
    """Parse PromQL, filling in `$name` from `variables` (numbers; `window` as seconds or a text such as "10s").

    `$window` may be left out of `variables`: the expression then takes its window when it is evaluated. Results are
    cached. Raises PromqlError, with the position, for anything that is not PromQL or is outside `SUBSET`.
    """
    return _parse(text, tuple(sorted((variables or {}).items())))


def needed_names(expr: Expr) -> frozenset[str]:
    """All metric names that `expr` reads."""
    return frozenset(expr.selectors())


def needed_history(root: Node) -> dict[str, float]:
    """Metric name to seconds of history that evaluating `root` reads."""
    needs: dict[str, float] = {}
    for node in walk(root):
        if isinstance(node, Selector):
            span = LOOKBACK_MS if node.range_ms is None else node.range_ms
            needs[node.name] = max(needs.get(node.name, 0.0), (span + max(node.offset_ms, 0)) / 1000)
    return needs


@lru_cache(maxsize=4096)
def _parse(text: str, variables: tuple[tuple[str, Variable], ...]) -> Expr:
    if len(text) > MAX_TEXT:
        raise PromqlError(f"an expression may have {MAX_TEXT} characters, this one has {len(text)}", text, MAX_TEXT)
    values = dict(variables)
    window_open = WINDOW not in values and WINDOW in variables_in(text)
    if window_open:
        values[WINDOW] = _TRIAL_WINDOW
    tokens = filled(text, values)
    _check_tokens(text, tokens)
    root = _checked_root(text, fill_in(text, values), tokens)
    return Expr(text, root, variables, window_open)


def _checked_root(text: str, query: str, tokens: Sequence[Token]) -> Node:
    try:
        root = convert(promql_parser.parse(query))
    except OutsideSubset as error:
        raise PromqlError(str(error), text, _position_of(error.word, tokens)) from None
    except ValueError as error:
        position = locate(str(error), tokens, len(text))
        raise PromqlError(_explain(str(error), text, position), text, position) from None
    if type_of(root) in ("matrix", "string"):
        reason = "a range vector is no result, use it in a function such as rate()"
        raise PromqlError(reason if type_of(root) == "matrix" else "a string is no result", text, tokens[0].position)
    return root


def _explain(message: str, text: str, position: int) -> str:
    """The parser's message, made concrete where it only says that the query is invalid."""
    if message != "invalid promql query":
        return message
    rest = text[position:].split()
    return f"unexpected {rest[0][:40]!r}" if rest else "unexpected end"


def _position_of(word: str, tokens: Sequence[Token]) -> int:
    for token in tokens:
        if word in (token.text, token.text.lower(), token.text[1:-1]):
            return token.position
    return tokens[0].position if tokens else 0


def _check_tokens(text: str, tokens: Sequence[Token]) -> None:
    """Refuse what is outside the subset where the token alone shows it: so the position is exact."""
    depth, operators, in_range = 0, 0, False
    for token, following in zip_longest(tokens, tokens[1:]):
        if token.kind == "operator":
            depth += (token.text in "([{") - (token.text in ")]}")
            in_range = (in_range or token.text == "[") and token.text != "]"
        operators += token.kind in ("operator", "word") and token.text.lower() in _OPERATORS
        if depth > MAX_BRACKETS:
            raise PromqlError(f"brackets nest deeper than {MAX_BRACKETS}", text, token.position)
        if operators > MAX_OPERATORS:
            raise PromqlError(f"more than {MAX_OPERATORS} operators", text, token.position)
        if token.kind == "operator" and token.text == "@":
            raise PromqlError("the @ modifier is outside the subset", text, token.position)
        if in_range and token.kind in ("operator", "word") and token.text.startswith(":"):
            raise PromqlError("subqueries are outside the subset", text, token.position)
        if token.kind == "word" and following is not None and following.text == "(":
            _check_function(text, token)


def _check_function(text: str, token: Token) -> None:
    if token.text in SUBSET.functions or token.text.lower() in _CALL_LIKE:
        return
    meant = near(token.text, sorted(SUBSET.functions | SUBSET.aggregations))
    hint = f"; the nearest is {meant}()" if meant else ""
    raise PromqlError(f"function {token.text}() is outside the subset{hint}", text, token.position)
