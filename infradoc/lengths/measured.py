"""Measured lengths: request by request where they are known, bounds where only histograms are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from infradoc.signals.percentiles import min_samples

QUANTILES = (0.5, 0.9, 0.99)
MAX_TOKENS = 1 << 31  # a count above this is damage


@dataclass(slots=True)
class Measured:
    """Lengths in tokens. `totals` are prompt + output of each request; `prompts` and `outputs` may be shorter, where a
    source tells the total alone. `bounds` stands in for rows when only histograms are there.
    """

    source: str
    totals: list[int] = field(default_factory=list)
    prompts: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    bounds: Bounds | None = None
    skipped: int = 0  # rows without usable lengths

    def add(self, prompt: int | None, output: int | None, total: int | None = None) -> None:
        """Count one request; `total` only where the parts are not known."""
        if prompt is not None and output is not None:
            self.prompts.append(prompt)
            self.outputs.append(output)
            self.totals.append(prompt + output)
        elif total is not None:
            self.totals.append(total)
        else:
            self.skipped += 1

    @property
    def n(self) -> int:
        """Requests behind the figures."""
        return self.bounds.n if self.bounds is not None else len(self.totals)

    @property
    def exact(self) -> bool:
        """Whether each request was seen; otherwise the figures are upper bounds from buckets."""
        return self.bounds is None

    def total_quantile(self, quantile: float) -> float | None:
        """Quantile of prompt + output: a value that was really seen, or an upper bound. None with too few requests."""
        if self.n < min_samples(quantile):
            return None
        return self.bounds.total(quantile) if self.bounds is not None else nearest_rank(self.totals, quantile)

    def longest(self) -> int | None:
        """The longest request seen; None where only buckets are known."""
        return max(self.totals) if self.exact and self.totals else None

    def above(self, limit: int) -> int | None:
        """Requests longer than `limit`; None where only buckets are known."""
        return sum(total > limit for total in self.totals) if self.exact else None


def token_count(value: object) -> int | None:
    """A plausible number of tokens, also from a text of digits; None for anything else, such as 3.5, true or 1e30."""
    if isinstance(value, str) and value.isdecimal() and len(value) < len(str(MAX_TOKENS)) + 1:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MAX_TOKENS:
        return None
    return int(value) if value == int(value) else None


def nearest_rank(values: Iterable[float], quantile: float) -> float:
    """The smallest value that at least `quantile` of all do not exceed; a value of the data, nothing interpolated."""
    ordered = sorted(values)
    return float(ordered[max(0, math.ceil(quantile * len(ordered) - 1e-9) - 1)])


@dataclass(frozen=True, slots=True)
class Bounds:
    """Two histograms (upper bound -> cumulative count, with +Inf): prompt and output, not joined by request."""

    prompt: Mapping[float, float]
    output: Mapping[float, float]

    @property
    def n(self) -> int:
        """Requests in the smaller of the two."""
        return round(min(max(self.prompt.values(), default=0.0), max(self.output.values(), default=0.0)))

    def total(self, quantile: float) -> float | None:
        """An upper bound for the quantile of prompt + output.

        How the two go together is not known, so the tail is halved: at most (1 - q) / 2 of the prompts exceed a and at
        most as many outputs exceed b, hence at most 1 - q of the sums exceed a + b (union bound). None when a rank
        falls into the open last bucket.
        """
        half = 1 - (1 - quantile) / 2
        parts = [bucket_above(buckets, half) for buckets in (self.prompt, self.output)]
        return None if parts[0] is None or parts[1] is None else parts[0] + parts[1]


def bucket_above(cumulative: Mapping[float, float], quantile: float) -> float | None:
    """Upper bound of the bucket that holds the rank: no request of that rank is longer. None for the open bucket."""
    total = max(cumulative.values(), default=0.0)
    for bound in sorted(cumulative):
        if total and cumulative[bound] >= quantile * total - 1e-9:
            return None if math.isinf(bound) else bound
    return None


def quantile_bound(cumulative: Mapping[float, float], quantile: float) -> float | None:
    """An upper bound for the quantile: the edge of its bucket. None with too few samples, or in the open bucket."""
    total = max(cumulative.values(), default=0.0)
    return bucket_above(cumulative, quantile) if total >= min_samples(quantile) else None
