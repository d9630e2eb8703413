"""Figures in JSON rows. Rows come from files of unknown making: what is no usable number counts as missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

# JSON as Python reads it has NaN, infinities and integers of any length: a sum that took one in would be lost.
_LARGEST = 1e300
_LATEST = 1e11  # Unix seconds of the year 5138; no calendar function goes much further


def is_number(value: Any) -> TypeGuard[float]:
    """Whether `value` is a finite number that a float can hold; a bool is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST


def row_time(row: Mapping[str, Any]) -> float | None:
    """The row's `t` in Unix seconds; None when it has none that can be a time."""
    time = row.get("t")
    return float(time) if is_number(time) and 0 <= time < _LATEST else None
