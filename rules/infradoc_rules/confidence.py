"""Log odds to a probability."""

from __future__ import annotations

import math
from collections.abc import Iterable

_LIMIT = 30.0  # beyond it the probability is 1 or 0 to 13 digits


def confidence(prior: float, weights: Iterable[float]) -> float:
    """logistic(prior + sum of weights): prior and weights are log odds, the result lies in (0, 1)."""
    odds = max(-_LIMIT, min(_LIMIT, prior + math.fsum(weights)))
    return 1.0 / (1.0 + math.exp(-odds))
