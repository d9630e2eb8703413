"""Puts a rendered message into what a chat service takes: its size, and no markup that we did not write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from infradoc.alerts.clean import cut_bytes
from infradoc.alerts.render import Rendered, plain_lines
from infradoc.alerts.sinks.base import as_json


def paragraphs_text(rendered: Rendered, lang: str) -> str:
    """All paragraphs as plain lines."""
    return "\n\n".join("\n".join([part.title, *plain_lines(part, lang)]) for part in rendered.paragraphs)


def fitted(build: Callable[[str], Any], text: str, most: int) -> bytes:
    """The JSON of `build(text)` in at most `most` bytes: `text` is cut between characters and marked until it fits.

    By halving: quotes and backslashes take two bytes in JSON, so the size of a cut does not follow from its length.
    """
    body = as_json(build(text))
    if len(body) <= most:
        return body
    fits, too_long = 0, len(text.encode())
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if len(as_json(build(cut_bytes(text, middle)))) <= most:
            fits = middle
        else:
            too_long = middle
    return as_json(build(cut_bytes(text, fits)))


def without_markup(text: str) -> str:
    """`text` with the characters that WeCom's markdown gives a meaning to replaced by their full-width twins.

    It knows no escapes; the twins look the same and mean nothing. The underscore stays: it is in every flag, and no
    markup there.
    """
    return text.translate(_TWINS)


_TWINS = str.maketrans("<>[]*`#~|&", "＜＞［］＊｀＃～｜＆")
