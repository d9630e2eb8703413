"""Walk the tree at one moment. Pure: everything comes from the expression, the frame and the time."""

from __future__ import annotations

from typing import NamedTuple

from infradoc_rules.promql import binary, functions, selectors
from infradoc_rules.promql.aggregate import aggregate
from infradoc_rules.promql.errors import PromqlError
from infradoc_rules.promql.histogram import histogram_quantile
from infradoc_rules.promql.nodes import Aggregate, Binary, Call, Negate, Node, Number, Selector, String
from infradoc_rules.promql.parse import Expr
from infradoc_rules.promql.range_functions import RANGE_FUNCTIONS, Range
from infradoc_rules.promql.selectors import Selectable
from infradoc_rules.promql.vector import Sample, Vector, all_labels, unique, unnamed


class Element(NamedTuple):
    """One element of a result: a pair of labels (with `__name__` where Prometheus returns it) and value."""

    labels: dict[str, str]
    value: float


Result = float | tuple[Element, ...]


def evaluate(expr: Expr, frame: Selectable, t: float, window: float | None = None) -> Result:
    """The value of `expr` at Unix time `t` (seconds, taken to the millisecond): a float or a tuple of elements.

    `window` (seconds) fills in a `$window` that was left open when parsing; otherwise it is not looked at. Only
    `frame.select(name)` is used. Raises PromqlError when matching is ambiguous, when two results share all labels,
    or when `$window` is open and `window` is None.
    """
    if expr.window_open:
        if window is None:
            raise PromqlError("$window has no value: give evaluate() a window", expr.text, expr.text.find("$window"))
        expr = expr.with_window(window)
    try:
        value = _Moment(frame, selectors.to_ms(t)).value(expr.root)
    except PromqlError as error:
        raise PromqlError(error.message, expr.text) from None
    if isinstance(value, float):
        return value
    return tuple(Element(all_labels(sample), sample.value) for sample in value)


class _Moment:
    """Evaluation at one time over one frame.

    Many rules ask the same question of one frame. A frame that has a `memo` (a dict of its own) keeps the answers of
    functions and aggregations in it; vectors are never changed once they are made.
    """

    def __init__(self, frame: Selectable, now_ms: int) -> None:
        self.frame = frame
        self.now_ms = now_ms
        self._memo: dict[tuple[int, Node], float | Vector] | None = getattr(frame, "memo", None)

    def value(self, node: Node) -> float | Vector:
        """The node's scalar or vector."""
        match node:
            case Selector():
                return selectors.instant(node, self.frame, self.now_ms)
            case Number():
                return node.value
            case Call() | Aggregate():
                return self._remembered(node)
            case Binary():
                return self._binary(node)
            case Negate():
                return self._negate(node)
            case String():
                raise PromqlError("a string is no value")

    def _remembered(self, node: Call | Aggregate) -> float | Vector:
        if self._memo is None:
            return self._call(node) if isinstance(node, Call) else self._aggregate(node)
        key = (self.now_ms, node)
        value = self._memo.get(key)
        if value is None:
            value = self._memo[key] = self._call(node) if isinstance(node, Call) else self._aggregate(node)
        return value

    def scalar(self, node: Node) -> float:
        value = self.value(node)
        if not isinstance(value, float):
            raise PromqlError("a scalar was expected")
        return value

    def vector(self, node: Node) -> Vector:
        value = self.value(node)
        if isinstance(value, float):
            raise PromqlError("an instant vector was expected")
        return value

    def _negate(self, node: Negate) -> float | Vector:
        value = self.value(node.operand)
        if isinstance(value, float):
            return -value
        return unnamed([Sample(name, labels, -number) for name, labels, number in value])

    def _aggregate(self, node: Aggregate) -> Vector:
        param: float | str = 0.0
        if isinstance(node.param, String):
            param = node.param.value
        elif node.param is not None:
            param = self.scalar(node.param)
        return aggregate(node, self.vector(node.operand), param)

    def _binary(self, node: Binary) -> float | Vector:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(left, float):
            if isinstance(right, float):
                return binary.scalar_scalar(node.op, left, right)
            return binary.vector_scalar(node, right, left, scalar_left=True)
        if isinstance(right, float):
            return binary.vector_scalar(node, left, right, scalar_left=False)
        return binary.vector_vector(node, left, right)

    def _call(self, node: Call) -> float | Vector:
        name, args = node.function, node.args
        if name in RANGE_FUNCTIONS or name == "absent_over_time":
            return self._over_range(node)
        if name in functions.ELEMENTWISE:
            return functions.elementwise(name, self.vector(args[0]), [self.scalar(arg) for arg in args[1:]])
        match name:
            case "time":
                return self.now_ms / 1000
            case "vector":
                return [Sample("", {}, self.scalar(args[0]))]
            case "scalar":
                return functions.as_scalar(self.vector(args[0]))
            case "timestamp":
                return self._timestamp(args[0])
            case "absent":
                return functions.absent(args[0], bool(self.vector(args[0])))
            case "histogram_quantile":
                return histogram_quantile(self.scalar(args[0]), self.vector(args[1]))
            case "sort" | "sort_desc":
                return functions.ordered(self.vector(args[0]), descending=name == "sort_desc")
            case "label_replace" | "label_join":
                texts = [arg.value for arg in args[1:] if isinstance(arg, String)]
                function = functions.label_replace if name == "label_replace" else functions.label_join
                return function(self.vector(args[0]), *texts)
        raise PromqlError(f"function {name}() is outside the subset")

    def _timestamp(self, argument: Node) -> Vector:
        """The samples' own times for a bare selector; for anything else the evaluation time, as in Prometheus."""
        if isinstance(argument, Selector):
            timed = selectors.instant_with_times(argument, self.frame, self.now_ms)
            return unnamed([Sample("", sample.labels, time_ms / 1000) for sample, time_ms in timed])
        return unnamed([Sample(s.name, s.labels, self.now_ms / 1000) for s in self.vector(argument)])

    def _over_range(self, node: Call) -> Vector:
        selector = next(arg for arg in node.args if isinstance(arg, Selector))
        found = selectors.windows(selector, self.frame, self.now_ms)
        if node.function == "absent_over_time":
            return functions.absent(selector, bool(found))
        scalars = [self.scalar(arg) for arg in node.args if arg is not selector]
        end = self.now_ms - selector.offset_ms
        span = Range(end - (selector.range_ms or 0), end, *scalars)
        function = RANGE_FUNCTIONS[node.function]
        name = selector.name if node.function == "last_over_time" else ""
        values = ((window.labels, function(window.times, window.values, span)) for window in found)
        return unique([Sample(name, labels, value) for labels, value in values if value is not None])
