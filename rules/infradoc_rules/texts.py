"""Filling numbers into the texts of rules: `{value}`, `{value:.0%}`; nothing but names and number formats."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

_PLACE = re.compile(r"\{(\w+)(?::([^{}]*))?\}")
UNKNOWN_MARK = "?"


def places(template: str) -> frozenset[str]:
    """Names that a template fills in."""
    return frozenset(match.group(1) for match in _PLACE.finditer(template))


def render(template: str, values: Mapping[str, float | int | str | None]) -> str:
    """The template with its places filled in; a value that is not known reads "?".

    A format that does not fit the value (such as `.0%` of a text) falls back to the plain value, because a finding
    must not be lost over its wording.
    """

    def fill(match: re.Match[str]) -> str:
        value = values.get(match.group(1))
        return UNKNOWN_MARK if value is None else _formatted(value, match.group(2))

    return _PLACE.sub(fill, template)


def _formatted(value: float | int | str, spec: str | None) -> str:
    if isinstance(value, float) and math.isinf(value):
        return "∞"
    try:
        return format(value, spec) if spec else number(value)
    except ValueError:
        return number(value)


def number(value: float | int | str) -> str:
    """A number short enough to read: three significant digits below 1000, whole above, grouped by comma."""
    if isinstance(value, str) or not math.isfinite(value):
        return str(value)
    if value == int(value) or abs(value) >= 1000:
        return f"{round(value):,}"
    return f"{value:.3g}"
