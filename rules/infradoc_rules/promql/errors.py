"""The one error of this package."""

from __future__ import annotations


class PromqlError(ValueError):
    """An expression that cannot be parsed, is outside the subset, or fails while it is evaluated.

    `message` is one sentence; `text` is the expression as its author wrote it, before `$name` was filled in;
    `position` is the 0-based character in `text` that is to blame, None when the fault lies in the data (such as
    many-to-many matching).
    """

    def __init__(self, message: str, text: str = "", position: int | None = None) -> None:
        self.message = message
        self.text = text
        self.position = position
        where = "" if position is None else f" at character {position + 1}"
        of = f" of {_shorten(text)!r}" if text else ""
        super().__init__(f"PromQL: {message}{where}{of}")


def _shorten(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else text[:limit] + "..."
