"""Values of events and facts as numbers."""

from __future__ import annotations


def number(value: object) -> float | None:
    """A number as a float; None for texts, truth values, anything else and nothing."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
