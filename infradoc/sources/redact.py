"""Takes secrets out of a launch command, word by word: a flag's value stands in the word after it."""

from __future__ import annotations

import re
import shlex

from infradoc.sources.secrets import HIDDEN, without_secrets

_SECRET = re.compile(r"(?:^|[-_])(?:api[-_]?key|key|token|passw(?:or)?d|secret|credentials?)$", re.IGNORECASE)
_USERINFO = re.compile(r"(://)[^/@\s]+@")


def redact(words: list[str]) -> str:
    """A command line with the values of secret-looking flags and variables taken out, quoted for a shell."""
    out: list[str] = []
    hide_next = False
    for word in words:
        name, equals, _ = word.partition("=")
        if hide_next and not word.startswith("-"):
            out.append(HIDDEN)
        elif equals and _SECRET.search(name):
            out.append(f"{name}={HIDDEN}")
        else:
            out.append(shlex.quote(_USERINFO.sub(rf"\1{HIDDEN}@", word)))
        hide_next = not equals and word.startswith("-") and _SECRET.search(word) is not None
    return without_secrets(" ".join(out))
