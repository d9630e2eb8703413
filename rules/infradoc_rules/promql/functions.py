"""Functions of instant vectors and scalars."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from infradoc_rules.promql import arithmetic as go
from infradoc_rules.promql.nodes import Matcher, Node, Selector
from infradoc_rules.promql.patterns import compiled, expand
from infradoc_rules.promql.vector import Sample, Vector, all_labels, from_labels, get_label, unique, unnamed

# Value of a sample and the scalar arguments to the new value.
Elementwise = Callable[..., float]


def _round(value: float, to_nearest: float = 1.0) -> float:
    """The nearest multiple, halves up. Multiplies by the inverse as Prometheus does, which loses fewer digits."""
    inverse = go.divide(1.0, to_nearest)
    return go.divide(go.floor(value * inverse + 0.5), inverse)


ELEMENTWISE: Mapping[str, Elementwise] = {
    "abs": abs,
    "ceil": go.ceil,
    "floor": go.floor,
    "round": _round,
    "sqrt": go.square_root,
    "exp": go.exp,
    "ln": go.ln,
    "log2": go.log2,
    "log10": go.log10,
    "sgn": go.sign,
    "clamp": lambda value, low, high: go.larger(low, go.smaller(high, value)),
    "clamp_min": go.larger,
    "clamp_max": go.smaller,
}


def elementwise(name: str, vector: Vector, scalars: Sequence[float]) -> Vector:
    """Apply a function of ELEMENTWISE to every value; metric names are dropped."""
    if name == "clamp" and scalars[1] < scalars[0]:
        return []
    function = ELEMENTWISE[name]
    return unnamed([Sample(metric, labels, function(value, *scalars)) for metric, labels, value in vector])


def as_scalar(vector: Vector) -> float:
    """The value of the only sample; NaN when there is none or more than one."""
    return vector[0].value if len(vector) == 1 else math.nan


def absent(argument: Node, found: bool) -> Vector:
    """A 1 when nothing was found, with the labels that the argument's own `=` matchers fix."""
    if found:
        return []
    matchers = argument.matchers if isinstance(argument, Selector) else ()
    return [from_labels(_fixed_labels(matchers), 1.0)]


def _fixed_labels(matchers: Sequence[Matcher]) -> dict[str, str]:
    """Labels given by exactly one `=` matcher; Prometheus lets a later matcher of another kind remove one again."""
    fixed: dict[str, str] = {}
    seen = set()
    for matcher in matchers:
        if matcher.op == "=" and matcher.label not in seen:
            fixed[matcher.label] = matcher.value
            seen.add(matcher.label)
        else:
            fixed.pop(matcher.label, None)
    return fixed


def ordered(vector: Vector, descending: bool) -> Vector:
    """The vector by value; NaN last either way."""

    def key(sample: Sample) -> tuple[bool, float]:
        value = sample.value
        return (value != value, 0.0 if value != value else -value if descending else value)

    return sorted(vector, key=key)


def label_replace(vector: Vector, target: str, replacement: str, source: str, pattern: str) -> Vector:
    """Set `target` from `replacement` where the whole of `source` matches; an empty result removes the label."""
    fullmatch = compiled(pattern).fullmatch
    result = []
    for sample in vector:
        match = fullmatch(get_label(sample, source))
        result.append(sample if match is None else _with_label(sample, target, expand(replacement, match)))
    return unique(result)


def label_join(vector: Vector, target: str, separator: str, *sources: str) -> Vector:
    """Set `target` to the values of `sources` joined by `separator`; an empty result removes the label."""
    joined = (separator.join(get_label(sample, source) for source in sources) for sample in vector)
    return unique([_with_label(sample, target, text) for sample, text in zip(vector, joined, strict=True)])


def _with_label(sample: Sample, label: str, text: str) -> Sample:
    return from_labels({**all_labels(sample), label: text}, sample.value)
