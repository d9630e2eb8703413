"""Percentiles that carry their number of samples, and refuse when there are too few."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from infradoc_rules.model import Value


def samples_needed(q: float) -> int:
    """Fewest samples from which quantile `q` may be stated: one sample must lie beyond it.

    0.5 -> 2, 0.9 -> 10, 0.99 -> 100. Raises ValueError outside 0 < q < 1.
    """
    if not 0.0 < q < 1.0:
        raise ValueError(f"A quantile lies between 0 and 1, not at {q}.")
    tail = min(q, 1.0 - q)
    return max(2, math.ceil(round(1.0 / tail, 6)))


def percentile(ordered: Sequence[float], q: float) -> float | None:
    """Quantile `q` of ascending `ordered` by linear interpolation; None when there are too few samples for it."""
    count = len(ordered)
    if count < samples_needed(q):
        return None
    place = q * (count - 1)
    low = math.floor(place)
    high = min(low + 1, count - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Summary of one latency in seconds; a percentile is None when `n` is too small for it."""

    n: int
    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    max: float | None

    @classmethod
    def of(cls, samples: Sequence[float]) -> Distribution:
        """Summarise `samples` (seconds, any order)."""
        ordered = sorted(samples)
        if not ordered:
            return cls(0, None, None, None, None, None)
        mean = math.fsum(ordered) / len(ordered)
        p50, p90, p99 = (percentile(ordered, q) for q in (0.5, 0.9, 0.99))
        return cls(len(ordered), mean, p50, p90, p99, ordered[-1])

    def as_json(self) -> dict[str, Value | None]:
        """The summary rounded to microseconds."""
        values = {"mean": self.mean, "p50": self.p50, "p90": self.p90, "p99": self.p99, "max": self.max}
        return {"n": self.n, **{key: None if v is None else round(v, 6) for key, v in values.items()}}


def shown(value: float | None, n: int, q: float) -> str:
    """A quantile for a table: seconds, or why there is none ("n<100")."""
    if value is not None:
        return f"{value:.3f}"
    return f"n<{samples_needed(q)}" if n < samples_needed(q) else "-"
