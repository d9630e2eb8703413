"""The line above and the line below a screen: what is shown, and which keys do what."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text
from textual.widgets import Static

from infradoc.tui.paint import one_line


class TopBar(Static):
    """Title at the left, state at the right."""

    def __init__(self) -> None:
        super().__init__(id="top", markup=False)
        self._parts = ("", "")

    def say(self, left: str, right: str = "") -> None:
        """Set both ends."""
        self._parts = (one_line(left), one_line(right))
        self.refresh_text()

    def on_resize(self) -> None:
        """The gap between the ends follows the width."""
        self.refresh_text()

    def refresh_text(self) -> None:
        """Lay the two ends out; of the right one the last parts go first when there is no room."""
        left, right = self._parts
        width = max(1, self.size.width)
        parts = right.split("  ")
        while len(parts) > 1 and cell_len(left) + cell_len("  ".join(parts)) >= width:
            del parts[-1]
        right = "  ".join(parts)
        room = width - cell_len(left) - cell_len(right)
        text = Text(left, no_wrap=True, overflow="ellipsis")
        if room >= 1:
            text.append(" " * room + right)
        self.update(text)


class KeyBar(Static):
    """Keys with what they do, as many as fit."""

    def __init__(self, keys: Sequence[tuple[str, str]]) -> None:
        super().__init__(id="keys", markup=False)
        self._keys = keys

    def on_resize(self) -> None:
        """Show those that fit whole; the last ones, help and quit, always stay."""
        keys, width = list(self._keys), self.size.width
        while len(keys) > 2 and sum(cell_len(key) + cell_len(what) + 5 for key, what in keys) > width:
            del keys[-3]
        text = Text(no_wrap=True, overflow="ellipsis")
        for key, what in keys:
            text.append(f" {key} ", style="reverse")
            text.append(f" {what} ")
        self.update(text)
