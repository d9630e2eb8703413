"""Which labels the two sides of an operator can have: so that a rule which can never match is refused."""

from __future__ import annotations

from dataclasses import dataclass

from infradoc_rules.promql.nodes import Aggregate, Binary, Call, Negate, Node, Selector, children, type_of, walk
from infradoc_rules.signals import signal_table

TARGET_LABELS = frozenset({"engine", "model"})  # any series of an engine may have them, none needs to

# Labels of the table that some engines leave out, so that a series may come without.
SOMETIMES = frozenset(
    {
        ("llm_kv_cache_usage_ratio", "pool"),
        ("llm_preemptions_total", "reason"),
        ("llm_prefix_cache_hit_tokens_total", "tier"),
        ("llm_steps_total", "graph"),
        ("llm_step_seconds", "phase"),
    }
)
_FAMILIES_WITH_LOOSE_LABELS = ("client_", "proc_")  # class, role and pid come from the source, not from the engine
_SET_OPERATORS = frozenset({"and", "or", "unless"})


@dataclass(frozen=True, slots=True)
class LabelSets:
    """Labels that a result may carry, and those that each element of it surely carries."""

    may: frozenset[str]
    must: frozenset[str]


_NONE = LabelSets(frozenset(), frozenset())


def label_sets(node: Node) -> LabelSets:
    """Static label sets of a vector expression; a name that is not in the table counts as free of labels."""
    match node:
        case Selector():
            return _of_selector(node)
        case Aggregate():
            return _of_aggregate(node)
        case Negate():
            return label_sets(node.operand)
        case Binary():
            return _of_binary(node)
        case Call() if node.function == "histogram_quantile":
            inner = label_sets(node.args[1])
            return LabelSets(inner.may - {"le"}, inner.must - {"le"})
        case Call():
            vectors = [child for child in children(node) if type_of(child) in ("vector", "matrix")]
            return label_sets(vectors[0]) if vectors else _NONE
    return _NONE


def hopeless_matches(root: Node) -> list[str]:
    """One sentence for each operator between two vectors whose labels can never be equal."""
    found = []
    for node in walk(root):
        if isinstance(node, Binary) and type_of(node.left) == type_of(node.right) == "vector" and node.op != "or":
            clash = _clash(node)
            if clash:
                kind = "" if node.op in _SET_OPERATORS else "one-to-one "
                found.append(f"{kind}matching of `{node.op}` can never succeed: {clash}")
    return found


def _of_selector(node: Selector) -> LabelSets:
    spec = signal_table().resolve(node.name)
    if spec is None:
        return _NONE
    own = frozenset(spec.labels) | (frozenset({"le"}) if node.name.endswith("_bucket") else frozenset())
    pinned = frozenset(m.label for m in node.matchers if m.op == "=" and m.value)
    loose = spec.name.startswith(_FAMILIES_WITH_LOOSE_LABELS)
    sure = frozenset(label for label in own if not loose and (spec.name, label) not in SOMETIMES)
    return LabelSets(own | TARGET_LABELS | pinned, sure | pinned | (own & {"le"}))


def _of_aggregate(node: Aggregate) -> LabelSets:
    inner = label_sets(node.operand)
    if node.op in ("topk", "bottomk"):
        return inner
    kept = frozenset(node.grouping)
    if node.without:
        return LabelSets(inner.may - kept, inner.must - kept)
    return LabelSets(inner.may & kept, inner.must & kept)


def _of_binary(node: Binary) -> LabelSets:
    if type_of(node.right) != "vector" or node.op in ("and", "unless"):
        return label_sets(node.left)
    if type_of(node.left) != "vector":
        return label_sets(node.right)
    left, right = label_sets(node.left), label_sets(node.right)
    if node.op == "or":
        return LabelSets(left.may | right.may, left.must & right.must)
    if node.matching.cardinality == "one-to-many":
        return right
    if node.matching.cardinality == "one-to-one" and node.matching.on:
        on = frozenset(node.matching.labels)
        return LabelSets(left.may & on, left.must & on)
    return left


def _clash(node: Binary) -> str:
    left, right = (_compared(label_sets(side), node) for side in (node.left, node.right))
    for one, other, where in ((left, right, "left"), (right, left, "right")):
        alone = sorted(one.must - other.may)
        if alone:
            return f"only the {where} side has the label {alone[0]}"
    return ""


def _compared(sets: LabelSets, node: Binary) -> LabelSets:
    """The labels that matching looks at."""
    labels = frozenset(node.matching.labels)
    if node.matching.on:
        return LabelSets(sets.may & labels, sets.must & labels)
    return LabelSets(sets.may - labels, sets.must - labels)
