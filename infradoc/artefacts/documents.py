"""Documents of one value that lost what held them together: JSON that breaks off, YAML without its indentation."""

from __future__ import annotations

import json
from collections.abc import Sequence

from infradoc_rules.lazy_pattern import lazy

_BEGINS = frozenset({"{", "[", "[{"})
_ENDS = frozenset({"}", "]", "}]"})
_LEAST = 3  # lines of a document that is looked at
_LONGEST = 2_000
_OPENED = lazy(r"[a-z][A-Za-z]{2,40}:$")
_FILLED = lazy(r"(?:- )?[a-z][\w./-]{1,60}:(?: .*)?$")
_HEADS = ("apiVersion:", "services:", "kind:")


def breaks_off(lines: Sequence[str]) -> int | None:
    """The line at which what was to be one JSON value goes wrong; None where it is one, or another text."""
    filled = [line.strip() for line in lines if line.strip()]
    if len(filled) < _LEAST or filled[0] not in _BEGINS or filled[-1] not in _ENDS:
        return None
    try:
        json.loads("\n".join(lines))
    except json.JSONDecodeError as error:
        return error.lineno if error.msg != "Extra data" else None
    except (ValueError, RecursionError):  # a number of thousands of digits, or a thousand brackets
        return 1
    return None


def is_flat(lines: Sequence[str]) -> bool:
    """Whether a manifest or a Compose file stands without its indentation: nothing in it belongs to anything."""
    if len(lines) > _LONGEST or not any(line.startswith(_HEADS) for line in lines):
        return False
    filled = [line for line in lines if line.strip() and not line.startswith("#")]
    keys = [line for line in filled if _FILLED.match(line)]
    if len(keys) < _LEAST or 2 * len(keys) < len(filled):
        return False
    opened = [place for place, line in enumerate(filled[:-1]) if _OPENED.match(line)]
    return (
        len(opened) > 1
        and all(filled[place + 1][:1] not in (" ", "-", "\t") for place in opened[:1])
        and not any(line.startswith((" ", "\t")) for line in filled)
    )
