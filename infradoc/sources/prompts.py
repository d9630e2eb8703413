"""Takes users' words out of texts: engines write prompts into their logs when asked to, and clients echo bodies."""

from __future__ import annotations

import re

from infradoc_rules.lazy_pattern import lazy

_NAMES = r"(?:prompt|messages|content|text|input|input_text|generated_text)"
_IDS = r"(?:prompt|prompt_token_ids|input_ids)"
_QUOTE = r"\\{0,3}[\"']?"  # a JSON body inside a JSON string has a backslash before each of its quotes
_IS = rf"{_QUOTE}\s{{0,3}}[:=]\s{{0,3}}"
# No value is bounded: each alternative that begins also ends, so nothing is read twice and nothing is left over.
_SAID = lazy(
    rf"(?P<key>{_QUOTE}\b{_NAMES}{_IS})(?:"
    r"(?P<escape>\\{1,3}[\"'])(?P<escaped>.+?)(?:(?P=escape)|\Z)"
    r"|'(?P<single>(?:[^'\\]|\\.)+)'?"
    r"|\"(?P<double>(?:[^\"\\]|\\.)+)\"?"
    # Lists nest, so they hide the rest of the line; a shape such as input: [4096, 128] is nobody's words.
    r"|\[(?=\s{0,20}[\"'{\\])(?P<list>.+))"
    rf"|(?P<name>{_QUOTE}\b{_IDS}{_IS})\[(?!\d{{1,9}} characters\])(?P<numbers>.+)",
    re.IGNORECASE | re.DOTALL,
)
_VALUES = ("escaped", "single", "double", "list", "numbers")


def without_prompts(text: str) -> str:
    """`text` with each prompt and answer replaced by its length; doing it twice changes nothing more."""
    return _SAID.sub(_counted, text)


def _counted(found: re.Match[str]) -> str:
    words = next(found[name] for name in _VALUES if found[name] is not None)
    return f"{found['key'] or found['name']}[{len(words)} characters]"
