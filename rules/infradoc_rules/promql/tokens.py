"""A tokenizer for PromQL text: it fills in `$name` and remembers where each token stood.

promql-parser reports neither positions nor knows variables, so both are done here, before it sees the text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from infradoc_rules.promql.errors import PromqlError

Kind = Literal["string", "number", "duration", "word", "variable", "operator", "bad"]
Variable = float | str

_DURATION = r"(?:[0-9]+(?:ms|[smhdwy]))+"
_TOKEN = re.compile(
    r"(?P<skip>\s+|\#[^\n]*)"
    r"""|(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`]*`)"""
    rf"|(?P<duration>{_DURATION}(?![0-9A-Za-z_]))"
    r"|(?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<word>[A-Za-z_:][A-Za-z0-9_:]*)"
    r"|(?P<variable>\$[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<operator>==|!=|=~|!~|>=|<=|[-+*/%^<>=(){}\[\],@:])"
    r"|(?P<bad>.)",
    re.DOTALL,
)
_DURATION_ONLY = re.compile(_DURATION)
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000, "y": 31_536_000_000}


@dataclass(frozen=True, slots=True)
class Token:
    """One token. `position` is its 0-based place in the author's text, `text` what stands there after filling in."""

    kind: Kind
    text: str
    position: int


def tokenize(text: str) -> list[Token]:
    """Split `text`; white space and comments are dropped. Never raises: a stray character is a `bad` token."""
    tokens = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind is not None and kind != "skip":
            tokens.append(Token(kind, match.group(), match.start()))  # type: ignore[arg-type]
    return tokens


def variables_in(text: str) -> frozenset[str]:
    """Names of the `$name` variables in `text` (strings and comments do not count), without the dollar sign."""
    return frozenset(token.text[1:] for token in tokenize(text) if token.kind == "variable")


def fill_in(text: str, variables: Mapping[str, Variable]) -> str:
    """`text` with every `$name` replaced: by a duration in `[...]` and after `offset`, else by a number.

    A float stands for seconds where a duration is due, and a duration text such as "10s" for its seconds where a
    number is due. Raises PromqlError for a name that is not in `variables` or a value that fits neither.
    """
    parts, end = [], 0
    for old, new in zip(tokenize(text), filled(text, variables), strict=True):
        if old.kind == "variable":
            parts += [text[end : old.position], new.text]
            end = old.position + len(old.text)
    return "".join(parts) + text[end:]


def filled(text: str, variables: Mapping[str, Variable]) -> list[Token]:
    """The tokens of `fill_in(text, variables)`, each at its place in `text`."""
    tokens = tokenize(text)
    return [
        _value_token(text, token, variables, _wants_duration(tokens, index)) if token.kind == "variable" else token
        for index, token in enumerate(tokens)
    ]


def _wants_duration(tokens: Sequence[Token], index: int) -> bool:
    before = [token.text for token in tokens[max(0, index - 2) : index]]
    if before and before[-1] == "-":
        before.pop()
    return bool(before) and (before[-1] == "[" or before[-1].lower() == "offset")


def _value_token(text: str, token: Token, variables: Mapping[str, Variable], duration: bool) -> Token:
    name = token.text[1:]
    if name not in variables:
        known = ", ".join(f"${key}" for key in sorted(variables)) or "none"
        raise PromqlError(f"unknown variable {token.text} (known here: {known})", text, token.position)
    value = variables[name]
    try:
        if duration:
            return Token("duration", value if isinstance(value, str) else format_duration(value), token.position)
        number = parse_duration(value) if isinstance(value, str) else float(value)
    except ValueError as error:
        raise PromqlError(f"variable {token.text}: {error}", text, token.position) from None
    return Token("number", format_number(number), token.position)


def format_number(value: float) -> str:
    """A number as PromQL text; negative ones in brackets, so that `-1 ^ 2` cannot come of `$x ^ 2`."""
    if math.isnan(value):
        return "NaN"
    digits = "Inf" if math.isinf(value) else repr(abs(value))
    return f"(-{digits})" if value < 0 else digits


def format_duration(seconds: float) -> str:
    """Seconds as a PromQL duration with millisecond precision. Raises ValueError below 1 ms."""
    if not math.isfinite(seconds) or seconds < 0.0005:
        raise ValueError(f"a duration needs at least 1 ms, got {seconds!r} s")
    milliseconds = round(seconds * 1000)
    # The parser counts each unit in 32 bits: 50 days of milliseconds are 0 to it.
    if milliseconds < 1 << 32:
        return f"{milliseconds}ms"
    whole, rest = divmod(milliseconds, 1000)
    return f"{whole}s{rest}ms" if rest else f"{whole}s"


def parse_duration(text: str) -> float:
    """Seconds of a PromQL duration such as "1m30s". Raises ValueError."""
    if not _DURATION_ONLY.fullmatch(text):
        raise ValueError(f"{text!r} is no duration such as 10s or 500ms")
    parts = re.findall(r"([0-9]+)(ms|[smhdwy])", text)
    return sum(int(count) * _UNIT_MS[unit] for count, unit in parts) / 1000
