"""The syntax tree: frozen, hashable, without reference to the parser's own objects.

What an evaluation remembers by (selectors, calls, aggregations) keeps its hash: a hash of a whole tree at every look-up
took a tenth of a tick.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

ValueType = Literal["scalar", "vector", "matrix", "string"]
Cardinality = Literal["one-to-one", "many-to-one", "one-to-many", "many-to-many"]


@dataclass(frozen=True, slots=True)
class Number:
    """A literal number. `sign` tells 0.0 from -0.0, which are equal and yet give different quotients."""

    value: float
    sign: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sign", math.copysign(1.0, self.value))


@dataclass(frozen=True, slots=True)
class String:
    """A literal string; only ever an argument."""

    value: str


@dataclass(frozen=True, slots=True)
class Matcher:
    """`label op value`; `accepts` is the test on the label's value, with "" for an absent label."""

    label: str
    op: str  # = != =~ !~
    value: str
    accepts: Callable[[str], bool] = field(compare=False, repr=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.label, self.op, self.value)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class Selector:
    """Series of one metric. `range_ms` is None for an instant selector; `offset_ms` looks back when positive."""

    name: str
    matchers: tuple[Matcher, ...] = ()
    range_ms: int | None = None
    offset_ms: int = 0
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.name, self.matchers, self.range_ms, self.offset_ms)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class Negate:
    """Unary minus."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Call:
    """A function call; arity and argument types have been checked by the parser."""

    function: str
    args: tuple[Node, ...]
    returns: ValueType
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.function, self.args)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`op by|without (grouping) (param, operand)`."""

    op: str
    operand: Node
    param: Node | None = None
    grouping: tuple[str, ...] = ()
    without: bool = False
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        fields = (self.op, self.operand, self.param, self.grouping, self.without)
        object.__setattr__(self, "_hash", hash(fields))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class Matching:
    """How the samples of two vectors find each other."""

    cardinality: Cardinality = "one-to-one"
    on: bool = False  # True: `on(labels)`; False: `ignoring(labels)`
    labels: tuple[str, ...] = ()
    include: tuple[str, ...] = ()  # labels copied from the "one" side


@dataclass(frozen=True, slots=True)
class Binary:
    """`left op right`; `matching` is used only between two vectors."""

    op: str
    left: Node
    right: Node
    bool_modifier: bool = False
    matching: Matching = Matching()


Node = Number | String | Selector | Negate | Call | Aggregate | Binary


def type_of(node: Node) -> ValueType:
    """The static type of a node's value."""
    match node:
        case Number():
            return "scalar"
        case String():
            return "string"
        case Selector():
            return "vector" if node.range_ms is None else "matrix"
        case Negate():
            return type_of(node.operand)
        case Call():
            return node.returns
        case Aggregate():
            return "vector"
        case Binary():
            return "vector" if "vector" in (type_of(node.left), type_of(node.right)) else "scalar"


def children(node: Node) -> tuple[Node, ...]:
    """Direct children, left to right."""
    match node:
        case Negate():
            return (node.operand,)
        case Call():
            return node.args
        case Aggregate():
            return (node.operand,) if node.param is None else (node.param, node.operand)
        case Binary():
            return (node.left, node.right)
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, parents first."""
    yield node
    for child in children(node):
        yield from walk(child)
