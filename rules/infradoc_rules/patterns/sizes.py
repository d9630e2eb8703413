"""Numbers as logs print them: with thousands separators, sizes with their unit, and durations as Rust and Go do."""

from __future__ import annotations

import re

_SIZE = re.compile(r"^\s*(?P<number>-?[\d.,]+)\s*(?P<unit>[KMGT]iB?|[KMGT]B|(?-i:[KMGT])|bytes|B)?\s*$", re.IGNORECASE)
_DURATION = re.compile(r"(?P<number>\d{1,12}(?:\.\d{1,12})?)(?P<unit>ms|[u\u00b5\u03bc]s|ns|h|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ns": 1e-9}
_HEX = re.compile(r"0x[0-9a-fA-F]{1,12}")
# torch, vLLM and llama.cpp print powers of 1024 even where they write "GB"; a decimal reading would be 7 % off at most.
_FACTORS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def number_of(text: str) -> float:
    """ "1,024", "84.00 MiB", "64M" or "0 bytes" as a number, sizes in bytes; "20.3ms" or "1h24m39s" in seconds.

    Raises ValueError for anything else.
    """
    if _HEX.fullmatch(text):
        return float(int(text, 16))
    found = _SIZE.match(text)
    if found is None:
        return _seconds(text)
    unit = (found["unit"] or "").lower()
    return float(found["number"].replace(",", "")) * _FACTORS.get(unit[:1], 1)


def _seconds(text: str) -> float:
    parts = list(_DURATION.finditer(text.strip()))
    if not parts or "".join(part[0] for part in parts) != text.strip():
        raise ValueError(f"{text!r} is no number, no size and no duration")
    return sum(float(part["number"]) * _SECONDS[part["unit"]] for part in parts)
