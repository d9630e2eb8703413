"""Lasting troubles of the watch's parts: each is said when it begins or changes, and when it is over."""

from __future__ import annotations

import threading
from collections.abc import Callable

Say = Callable[[str, str], None]  # event, text


class Troubles:
    """By part. Used from any thread."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._guard = threading.Lock()
        self._texts: dict[str, str] = {}

    def note(self, part: str, text: str, over: str = "") -> None:
        """What is wrong with `part` now; "" when nothing is: then `over` is said. The same once more is no news."""
        with self._guard:
            before = self._texts.get(part, "")
            if text == before:
                return
            self._texts[part] = text
        self._say("trouble" if text else "back", text or over or f"{part}: works again")

    def forget(self, part: str) -> None:
        """`part` is no more: nothing is said."""
        with self._guard:
            self._texts.pop(part, None)

    @property
    def now(self) -> dict[str, str]:
        """Those that last, by part."""
        with self._guard:
            return {part: text for part, text in self._texts.items() if text}
