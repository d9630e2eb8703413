"""Takes secrets out of everything that a report on artefacts says: logs and launch commands hold keys."""

from __future__ import annotations

import re
from typing import Any

from infradoc.sources.redact import redact_line

# Keys that tell themselves by their shape, wherever they stand; what follows a flag's or variable's name is taken out
# by `redact_line`. Repeats are bounded, so no text takes quadratic time.
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,100}"
    r"|sk-[A-Za-z0-9_-]{16,200}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}"
    r"|gh[pousr]_[A-Za-z0-9]{20,255}|github_pat_[A-Za-z0-9_]{20,255}"
    r"|glpat-[A-Za-z0-9_-]{16,100}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,200}"
    r"|AIza[A-Za-z0-9_-]{30,60}"
    r"|nvapi-[A-Za-z0-9_-]{20,200}"
    r"|eyJ[A-Za-z0-9_-]{8,2000}\.[A-Za-z0-9_-]{8,2000}\.[A-Za-z0-9_-]{8,2000})"
)
_NAMED = re.compile(
    r"((?:[A-Z0-9_]{0,40}(?:API_?KEY|ACCESS_KEY(?:_ID)?|SECRET(?:_KEY)?|PASSWORD|PASSWD|_TOKEN)|HF_TOKEN|--(?:api-key|hf-token|password|token))"
    r"['\"]?(?:\s{0,3}[=:]\s{0,3}|\s{1,3}))(['\"]?)[^\s'\",;)}\]]{4,500}\2"
)
HIDDEN = "REDACTED"


def without_secrets(text: str) -> str:
    """`text` with keys, tokens and passwords replaced."""
    return _SHAPES.sub(HIDDEN, redact_line(_NAMED.sub(rf"\1{HIDDEN}", text)))


def clean_report(value: Any) -> Any:
    """A report (or any part of one) in which no text holds a secret."""
    if isinstance(value, str):
        return without_secrets(value) if len(value) > 8 else value
    if isinstance(value, list | tuple):
        return [clean_report(item) for item in value]
    return {key: clean_report(item) for key, item in value.items()} if isinstance(value, dict) else value
