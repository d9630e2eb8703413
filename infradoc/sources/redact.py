"""Takes secrets out of what a recording keeps: it is made to be sent to somebody else."""

from __future__ import annotations

import re
import shlex

_SECRET = re.compile(r"(?:^|[-_])(?:api[-_]?key|key|token|passw(?:or)?d|secret|credentials?)$", re.IGNORECASE)
_USERINFO = re.compile(r"(://)[^/@\s]+@")
# Servers log their arguments at start, keys among them: 'api_key': ['k'] (vLLM), --api-key k. A bare "token" is left
# alone: in these logs it is nearly always a count. Lengths are bounded, so that no line takes quadratic time.
_LOGGED = re.compile(
    r"""((?:api[-_]?key|(?:hf|auth|access|admin)[-_]token|passw(?:or)?d|secret)['"]?(?:\s*[=:]\s*|\s+)|\bbearer\s+)"""
    r"""(?:\[[^\]]{0,2000}\]|'[^']{0,500}'|"[^"]{0,500}"|[^\s,;)}\]]+)""",
    re.IGNORECASE,
)


def redact(words: list[str]) -> str:
    """A command line with the values of secret-looking flags and variables taken out, quoted for a shell."""
    out: list[str] = []
    hide_next = False
    for word in words:
        name, equals, _ = word.partition("=")
        if hide_next and not word.startswith("-"):
            out.append("REDACTED")
        elif equals and _SECRET.search(name):
            out.append(f"{name}=REDACTED")
        else:
            out.append(shlex.quote(_USERINFO.sub(r"\1REDACTED@", word)))
        hide_next = not equals and word.startswith("-") and _SECRET.search(word) is not None
    return " ".join(out)


def redact_line(line: str) -> str:
    """A log line with the values of key-like arguments and the passwords of URLs taken out."""
    return _LOGGED.sub(r"\1REDACTED", _USERINFO.sub(r"\1REDACTED@", line))
