"""Regular expressions of matchers and label_replace: RE2 syntax, anchored at both ends, as in Prometheus."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import re2

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False  # a bad pattern is reported as PromqlError, not by the library on stderr

# A label value of a live target comes back every tick; the bound keeps churn from growing memory.
_VALUES_REMEMBERED = 4096

LABEL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GROUP = re.compile(r"\$(?:(\$)|(\w+)|\{(\w+)\})")


@lru_cache(maxsize=512)
def compiled(pattern: str) -> Any:
    """The compiled RE2 pattern, to be used with `fullmatch`. Raises ValueError when RE2 refuses it."""
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        raise ValueError(f"invalid regular expression {pattern!r}: {reason}") from None


@lru_cache(maxsize=512)
def full_match_test(pattern: str) -> Callable[[str], bool]:
    """A test of whole values against `pattern` that remembers its answers. Raises ValueError for a bad pattern."""
    fullmatch = compiled(pattern).fullmatch

    @lru_cache(maxsize=_VALUES_REMEMBERED)
    def test(value: str) -> bool:
        return fullmatch(value) is not None

    return test


def is_label_name(name: str) -> bool:
    """Whether `name` may be a label name in Prometheus 2.x."""
    return LABEL_NAME.fullmatch(name) is not None


def expand(template: str, match: Any) -> str:
    """`template` with $1, $name, ${name} and $$ filled in from `match`; unknown groups are empty, as in Go."""
    groups, names = (match.group(0), *match.groups()), match.groupdict()

    def fill(found: re.Match[str]) -> str:
        if found.group(1):
            return "$"
        key = found.group(2) or found.group(3)
        if key.isascii() and key.isdigit():
            value = groups[int(key)] if int(key) < len(groups) else None
        else:
            value = names.get(key)
        return value or ""

    return _GROUP.sub(fill, template)
