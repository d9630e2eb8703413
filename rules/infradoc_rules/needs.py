"""Which signals an expression cannot see: so that a rule is `unknown`, not `ok`, when it is blind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from infradoc_rules.model import Series, SignalFrame
from infradoc_rules.promql import Expr, is_stale
from infradoc_rules.promql.nodes import Binary, Node, Selector, children
from infradoc_rules.promql.selectors import matching_series
from infradoc_rules.signals import signal_table

_RANGE_SAMPLES = 2  # below that a rate has no value, and "nothing moved" cannot be told from "just arrived"
_FRESH_PERIODS = 4


def needed_selectors(node: Node) -> Iterator[Selector]:
    """Selectors that must have samples. What stands behind `unless` may be absent: then nothing is left out."""
    if isinstance(node, Selector):
        yield node
    below = (node.left,) if isinstance(node, Binary) and node.op == "unless" else children(node)
    for child in below:
        yield from needed_selectors(child)


@lru_cache(maxsize=4096)
def _needed(expr: Expr) -> tuple[Selector, ...]:
    """`needed_selectors` of an expression, each once; walking the trees at every tick took longer than evaluating."""
    return tuple(dict.fromkeys(needed_selectors(expr.root)))


def missing_signals(expr: Expr, frame: SignalFrame) -> list[str]:
    """Selectors of `expr` without the samples they need at `frame.now`, each as text; empty when it can be judged.

    A range needs two samples inside it, an instant selector one that is not older than the window. Label matchers
    count where absence means "no data"; a counter that reads 0 when absent needs only its name.
    """
    gaps = [_shown(node) for node in _needed(expr) if not _seen(node, frame)]
    return list(dict.fromkeys(gaps)) if gaps else gaps


def only_history_missing(expr: Expr, frame: SignalFrame) -> bool:
    """Whether all that `expr` cannot see yet is the past of signals that are there now."""
    return all(_seen(node, frame) or (node.offset_ms > 0 and _seen(_at_present(node), frame)) for node in _needed(expr))


@lru_cache(maxsize=1024)
def _at_present(node: Selector) -> Selector:
    return replace(node, offset_ms=0)


def _seen(node: Selector, frame: SignalFrame) -> bool:
    """`_visible`, asked once a frame: many rules need the same signals."""
    memo: dict[object, bool] | None = getattr(frame, "memo", None)
    if memo is None:
        return _visible(node, frame)
    seen = memo.get(node)
    if seen is None:
        seen = memo[node] = _visible(node, frame)
    return seen


def _visible(node: Selector, frame: SignalFrame) -> bool:
    end = frame.now - node.offset_ms / 1000
    span = node.range_ms / 1000 if node.range_ms else max(frame.window, _FRESH_PERIODS * frame.period)
    wanted = _RANGE_SAMPLES if node.range_ms else 1
    series = matching_series(node, frame) if _labels_matter(node.name) else frame.select(node.name)
    return any(_samples_in(one, end - span, end, wanted) for one in series)


@lru_cache(maxsize=1024)
def _labels_matter(name: str) -> bool:
    spec = signal_table().resolve(name)
    return spec is None or spec.absent == "no_data"


def _samples_in(series: Series, start: float, end: float, wanted: int) -> bool:
    """Whether at least `wanted` samples that are no stale markers lie in [start, end]; looks from the newest back."""
    times, values = series.times, series.values
    start, end, count = start - 0.001, end + 0.001, 0
    for index in range(len(times) - 1, -1, -1):
        time = times[index]
        if time < start:
            return False
        if time <= end and not is_stale(values[index]):
            count += 1
            if count >= wanted:
                return True
    return False


def _shown(node: Selector) -> str:
    matchers = ", ".join(f'{m.label}{m.op}"{m.value}"' for m in node.matchers) if _labels_matter(node.name) else ""
    history = f" ({node.offset_ms / 1000:g} s of history)" if node.offset_ms > 0 else ""
    return f"{node.name}{{{matchers}}}{history}" if matchers else f"{node.name}{history}"
