"""Matchers of silences and routes: `target=prod`, `finding=~kv-.*`, `severity!=info`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import re2

LABELS = ("target", "finding", "severity")
_MATCHER = re.compile(r"\s*(\w+)\s*(=~|!~|!=|=)\s*(.*?)\s*", re.DOTALL)
LONGEST = 1000


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on a label. Patterns are RE2, match the whole value, and take linear time on any text."""

    label: str
    operator: str
    value: str

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the label has (or, with `!`, has not) that value."""
        found = labels.get(self.label, "")
        if self.operator.endswith("~"):
            hit = re2.fullmatch(self.value, found) is not None
        else:
            hit = found == self.value
        return not hit if self.operator.startswith("!") else hit

    def __str__(self) -> str:
        return f"{self.label}{self.operator}{self.value}"


def parse_matcher(text: str) -> Matcher:
    """Raises ValueError with a sentence about what is wrong."""
    if len(text) > LONGEST:
        raise ValueError(f"{text[:80]!r}... is no matcher: it is longer than {LONGEST:,} characters; write a pattern")
    found = _MATCHER.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:80]!r} is no matcher; write for example target=prod or finding=~kv-.*")
    label, operator, value = found.groups()
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1]
    if label not in LABELS:
        raise ValueError(f"{label!r} is no label; valid are {', '.join(LABELS)}")
    if operator.endswith("~"):
        _compiled(value)
    return Matcher(label, operator, value)


def _compiled(pattern: str) -> None:
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(f"{pattern[:80]!r} is no pattern that RE2 takes: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    first = error.args[0] if error.args else error
    return first.decode(errors="replace") if isinstance(first, bytes) else str(first)


@dataclass(frozen=True, slots=True)
class Silence:
    """Findings that match all of `matchers` are not told between `starts` and `ends` (Unix seconds)."""

    id: str
    matchers: tuple[Matcher, ...]
    starts: float
    ends: float
    author: str = ""
    comment: str = ""

    def mutes(self, labels: Mapping[str, str], now: float) -> bool:
        """Whether it is in force at `now` and names this finding."""
        return self.starts <= now < self.ends and all(matcher.matches(labels) for matcher in self.matchers)

    def as_dict(self) -> dict[str, Any]:
        """For `alerts list --json`."""
        return {
            "id": self.id,
            "matchers": [str(matcher) for matcher in self.matchers],
            "starts": self.starts,
            "ends": self.ends,
            "author": self.author,
            "comment": self.comment,
        }


def all_match(matchers: Sequence[Matcher], labels: Mapping[str, str]) -> bool:
    """Whether every matcher takes these labels; none at all takes everything."""
    return all(matcher.matches(labels) for matcher in matchers)
