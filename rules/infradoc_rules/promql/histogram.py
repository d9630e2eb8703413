"""histogram_quantile over classic buckets (label `le`, cumulative counts)."""

from __future__ import annotations

import re
from functools import lru_cache
from operator import itemgetter

from infradoc_rules.promql.arithmetic import INF, NAN, divide
from infradoc_rules.promql.vector import Sample, Vector, unique

# Python's float() also takes spaces and other scripts' digits, which Go's strconv.ParseFloat does not. A bound of NaN,
# which Prometheus sorts in no certain way, is no bound here.
_FLOAT = re.compile(r"[+-]?(?:[0-9._]+(?:e[+-]?[0-9]+)?|inf(?:inity)?)", re.IGNORECASE)

Bucket = tuple[float, float]  # upper bound, cumulative count


def histogram_quantile(q: float, vector: Vector) -> Vector:
    """The q-quantile of each histogram in `vector`; samples without a readable `le` are skipped."""
    groups: dict[tuple[str, frozenset[tuple[str, str]]], list[Bucket]] = {}
    labels_of: dict[tuple[str, frozenset[tuple[str, str]]], dict[str, str]] = {}
    for name, labels, value in vector:
        bound = parse_bound(labels.get("le", ""))
        if bound is None:
            continue
        rest = {} if len(labels) == 1 else {key: text for key, text in labels.items() if key != "le"}
        key = (name, frozenset(rest.items()))
        if key not in groups:
            groups[key], labels_of[key] = [], rest
        groups[key].append((bound, value))
    return unique([Sample("", labels_of[key], bucket_quantile(q, buckets)) for key, buckets in groups.items()])


@lru_cache(maxsize=4096)
def parse_bound(text: str) -> float | None:
    """The number in a `le` label, None when it is none."""
    try:
        return float(text) if _FLOAT.fullmatch(text) else None
    except ValueError:
        return None


def bucket_quantile(q: float, buckets: list[Bucket]) -> float:
    """The quantile of one histogram, linear within a bucket; the lowest bucket starts at 0 when its bound is above 0.

    In the +Inf bucket it is the second highest bound. NaN without a +Inf bucket, with fewer than two buckets, or
    without observations; -Inf for q < 0 and +Inf for q > 1.
    """
    if q != q:
        return NAN
    if q < 0 or q > 1:
        return -INF if q < 0 else INF
    bounds, counts = _cumulative(buckets)
    if bounds[-1] != INF or len(bounds) < 2 or counts[-1] == 0:
        return NAN
    rank = q * counts[-1]
    index = _first_reaching(counts, rank)
    if index == len(bounds) - 1:
        return bounds[-2]
    if index == 0 and bounds[0] <= 0:
        return bounds[0]
    start, below = (bounds[index - 1], counts[index - 1]) if index else (0.0, 0.0)
    return start + (bounds[index] - start) * divide(rank - below, counts[index] - below)


def _cumulative(buckets: list[Bucket]) -> tuple[list[float], list[float]]:
    """Sorted bounds and their counts: equal bounds added up, then decreases lifted to the highest count before.

    Counts can decrease because the buckets of one scrape are not read at one instant.
    """
    bounds: list[float] = []
    counts: list[float] = []
    for bound, count in sorted(buckets, key=itemgetter(0)):
        if bounds and bounds[-1] == bound:
            counts[-1] += count
        else:
            bounds.append(bound)
            counts.append(count)
    highest = counts[0]
    for index, count in enumerate(counts):
        if count > highest:
            highest = count
        elif count < highest:
            counts[index] = highest
    return bounds, counts


def _first_reaching(counts: list[float], rank: float) -> int:
    """Binary search for the first bucket with at least `rank` observations; the last bucket when NaN forbids it."""
    low, high = 0, len(counts) - 1
    while low < high:
        middle = (low + high) // 2
        if counts[middle] >= rank:
            high = middle
        else:
            low = middle + 1
    return low
