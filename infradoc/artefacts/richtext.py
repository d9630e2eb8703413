"""The text of an RTF document: what a word processor saved of a log that was pasted into it."""

from __future__ import annotations

import re

MOST_BYTES = 16 << 20
_TOKEN = re.compile(
    r"\\([a-z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-fA-F]{2})|\\([^a-z])|([{}])|([\r\n]+)|([^\\{}\r\n]+)", re.IGNORECASE
)
_BREAKS = {"par": "\n", "line": "\n", "sect": "\n", "page": "\n", "tab": "\t", "row": "\n", "cell": "\t"}
_QUOTES = {
    "lquote": "'",
    "rquote": "'",
    "ldblquote": '"',
    "rdblquote": '"',
    "endash": "-",
    "emdash": "--",
    "bullet": "*",
}
# Groups that hold no text of the document.
_ASIDE = frozenset(
    {"fonttbl", "colortbl", "stylesheet", "info", "pict", "header", "footer", "generator", "listtable", "themedata",
     "listoverridetable", "rsidtbl", "expandedcolortbl", "latentstyles", "datastore", "fldinst", "xmlnstbl"}
)  # fmt: skip


def text_of(data: bytes) -> str:
    """The text, a line for each paragraph. Of a broken document what comes before the break."""
    out: list[str] = []
    stack: list[
        tuple[bool, int]
    ] = []  # (whether a group is left out, how many characters follow \\u) of the outer groups
    aside, fallback, skip = False, 1, 0
    for match in _TOKEN.finditer(data[:MOST_BYTES].decode("latin-1")):
        word, number, byte, symbol, brace, _, plain = match.groups()
        if brace == "{":
            stack.append((aside, fallback))
        elif brace == "}":
            aside, fallback = stack.pop() if stack else (False, 1)
        elif word is not None:
            if word in _ASIDE:
                aside = True
            elif word == "uc" and number:
                fallback = min(int(number), 8)
            elif word == "u" and number and not aside:
                out.append(chr(int(number) % 0x10000))
                skip = fallback
                continue
            elif not aside:
                out.append(_BREAKS.get(word) or _QUOTES.get(word, ""))
        elif symbol == "*":
            aside = True
        elif not aside:
            skip = _take(out, skip, byte, symbol, plain)
            continue
        skip = 0
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _take(out: list[str], skip: int, byte: str | None, symbol: str | None, plain: str | None) -> int:
    """Add what was written, but for `skip` characters that stand for the one "\\u" gave; what is left of skip."""
    if byte is not None:
        text = bytes([int(byte, 16)]).decode("cp1252", "replace")
    elif symbol is not None:
        text = {"\n": "\n", "\r": "\n", "~": " ", "_": "-", "-": ""}.get(symbol, symbol)
    else:
        text = plain or ""
    out.append(text[skip:])
    return max(0, skip - len(text))
