"""Regular expressions that are compiled when first asked: of the hundreds for all kinds of input a case needs a few.

Compiling them all took 0.1 s of the 0.4 s that a case may take.
"""

from __future__ import annotations

import re
from typing import Any, cast

_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split")


class _Lazy:
    """Stands for the pattern until a method of it is asked for; from then on the method itself is found at once."""

    __slots__ = ("_flags", "_made", "_text", *_METHODS)

    def __init__(self, text: str, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        # Reached only while the slot is empty, or for what is no method (`pattern`, `groups`).
        if name == "_made":
            self._made = re.compile(self._text, self._flags)
            return self._made
        for method in _METHODS:
            setattr(self, method, getattr(self._made, method))
        return getattr(self._made, name)


def lazy(text: str, flags: int = 0) -> re.Pattern[str]:
    """As `re.compile`, with a fault of the text told at its first use instead of here."""
    return cast("re.Pattern[str]", _Lazy(text, flags))
