"""One base error: what failed, where, and what to do next. The command line prints it as one sentence."""

from __future__ import annotations

import re

# A sentence that quotes another one at its end: the quoted one may bring a full stop of its own.
_ENDS_TWICE = re.compile(r"(?<![.])[.:;,]\s?[.](?=\s|$)")


class InfradocError(Exception):
    """A fault that a person can act on.

    `message` says what and where; `hint` says what to do next. `exit_code` is 2 for wrong usage or input (design
    contract of the command line), 1 for faults inside infradoc.
    """

    exit_code = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = _ENDS_TWICE.sub(".", message)
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


def visible(text: str) -> str:
    """`text` with control characters written out: names and pages of others must not steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
