"""Lengths from a file: JSON lines, or a log whose lines tell the tokens of a finished request."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from infradoc.errors import InfradocError
from infradoc.lengths.measured import Measured, token_count
from infradoc.small_file import open_regular

MAX_LINE_BYTES = 1 << 20  # a line with a whole prompt in it can be long; beyond this it is skipped and counted

_PROMPT = ("prompt_tokens", "input_tokens", "prompt_token_count", "n_prompt_tokens", "num_prompt_tokens", "prompt_len")
_OUTPUT = ("completion_tokens", "output_tokens", "generated_tokens", "candidates_token_count", "output_len")
_TOTAL = ("total_tokens",)
_NESTED = ("usage", "response", "body", "meta_info", "details")  # where services put the counts
# The same names in any log: key, quote, colon or equals sign, number. SGLang --log-requests, gateways, usage objects.
# A letter before the name makes it another one: max_output_tokens is a limit, cached_input_tokens a part.
_IN_LINE = {
    "prompt": re.compile(
        rb"(?<![A-Za-z0-9_])(?:%s)['\"]?\s*[:=]\s*(\d{1,10})\b" % b"|".join(k.encode() for k in _PROMPT)
    ),
    "output": re.compile(
        rb"(?<![A-Za-z0-9_])(?:%s)['\"]?\s*[:=]\s*(\d{1,10})\b" % b"|".join(k.encode() for k in _OUTPUT)
    ),
}
_LLAMACPP = re.compile(rb"stop processing: n_(?:tokens|past) = (\d{1,10}), truncated = \d")


class LengthsError(InfradocError):
    """No lengths can be had from this source; says what would have them."""


def read_file(path: Path) -> Measured:
    """All lengths in a file, `-` is not taken. Gzip is recognised by its content.

    Raises LengthsError, also for a folder, a pipe or a device.
    """
    found = Measured(path.name)
    try:
        with open_regular(path) as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            stream: Any = gzip.GzipFile(fileobj=raw) if packed else raw
            for line in bounded_lines(stream, found):
                add_line(found, line)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LengthsError(
            f"{path} cannot be read: {reason}.", "Check the path and that it was copied whole."
        ) from error
    if not found.totals:
        raise LengthsError(
            f"{path} holds no request lengths.",
            "It takes JSON lines with prompt_tokens and completion_tokens (usage objects too), logs with these names, "
            "and llama.cpp logs.",
        )
    return found


def bounded_lines(stream: BinaryIO, found: Measured) -> Iterator[bytes]:
    """Lines of at most MAX_LINE_BYTES; longer ones are skipped whole and counted."""
    while line := stream.readline(MAX_LINE_BYTES):
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            found.skipped += 1
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE_BYTES)
            continue
        yield line


def add_line(found: Measured, line: bytes) -> None:
    """Take the lengths of one line, if it has any. A JSON line without them is counted, a log line is not.

    A line may also be a whole array of such rows, or a row of a pretty array with its comma.
    """
    text = line.strip().removesuffix(b",")
    if text.startswith((b"{", b"[{")) and text.endswith((b"}", b"]")):
        try:
            rows = json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            for row in rows if isinstance(rows, list) else [rows]:
                add_row(found, row if isinstance(row, dict) else {})
            return
    stop = _LLAMACPP.search(text)
    if stop is not None:
        found.add(None, None, token_count(int(stop.group(1))))
        return
    prompt, output = (_IN_LINE[part].search(text) for part in ("prompt", "output"))
    if prompt is not None and output is not None:
        found.add(token_count(int(prompt.group(1))), token_count(int(output.group(1))))


def add_row(found: Measured, row: dict[str, Any]) -> None:
    """Take the lengths of one decoded row; one without them is counted."""
    holders = [row, *(row[key] for key in _NESTED if isinstance(row.get(key), dict))]
    holders += [inner["usage"] for inner in holders[1:] if isinstance(inner.get("usage"), dict)]
    values = {
        part: next((n for holder in holders for key in keys if (n := token_count(holder.get(key))) is not None), None)
        for part, keys in (("prompt", _PROMPT), ("output", _OUTPUT), ("total", _TOTAL))
    }
    found.add(values["prompt"], values["output"], values["total"])
