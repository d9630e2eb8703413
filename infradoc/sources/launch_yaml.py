"""YAML that people paste, as plain values."""

from __future__ import annotations

from typing import Any

_MOST_NODES = 100_000
_DEEPEST = 60


def parsed(text: str) -> Any:
    """A YAML or JSON text as a value; None when it is cut off, something else, several documents, or a bomb."""
    import yaml  # not above: most cases hold no YAML

    try:
        document = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    return document if _bounded(document) else None


def _bounded(document: Any) -> bool:
    """Whether a value is of a size and depth that a file has: aliases may stand for themselves or for billions."""
    open_ones = [(document, 0)]
    for _ in range(_MOST_NODES):
        if not open_ones:
            return True
        node, depth = open_ones.pop()
        if depth > _DEEPEST:
            return False
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        open_ones += [(value, depth + 1) for value in inner]
    return False
