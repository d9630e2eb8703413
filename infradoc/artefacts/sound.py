"""Numbers that can be counted with: damaged text and hostile input hold others, and one would spoil all sums."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact, Value

_LONG_TEXT = 300
_DIGITS = lazy(r"\d{300}")
_FAILURE = lazy(r"error|exception|fail|kill|abort|fatal|out of memory|timed? ?out", re.IGNORECASE)
LARGEST = float(1 << 63)  # no count, size or time in nanoseconds is larger


def is_sound(value: Value) -> bool:
    """Whether a value is a finite number of a size that something real can have, or no number at all.

    A text is none when a row of hundreds of digits is in it: Python refuses to make a number of it.
    """
    if isinstance(value, str):
        return len(value) < _LONG_TEXT or _DIGITS.search(value) is None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return -LARGEST <= value <= LARGEST


def sound_event(event: Event) -> Event | None:
    """The event when its numbers can be used; None for a measurement that is none.

    What says that something failed stays, without those numbers: that it failed is true all the same.
    """
    if all(map(is_sound, event.fields.values())):
        return event
    if _FAILURE.search(event.text or "") is None:
        return None
    return replace(event, fields={name: value for name, value in event.fields.items() if is_sound(value)})


def sound_facts(facts: list[Fact]) -> list[Fact]:
    """The facts whose value can be used."""
    return [fact for fact in facts if is_sound(fact.value)]
