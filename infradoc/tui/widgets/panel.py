"""A bordered panel that shows rows painted elsewhere. Costs as much as what is visible, and scrolls by itself."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip


class Panel(ScrollView, can_focus=True):
    """One panel; `key` is the digit that shows it."""

    ALLOW_MAXIMIZE = True

    class Moved(Message):
        """It has other room now than its rows were painted for: a bar of scrolling beside it came or went."""

    def __init__(self, key: str, title: str) -> None:
        super().__init__(id=f"panel-{key}", classes="panel")
        self.key = key
        self.border_title = f"{key} {title}"
        self._strips: Sequence[Strip] = ()
        self._style = Style()

    @property
    def room(self) -> tuple[int, int]:
        """Cells inside the border, without the bars of scrolling."""
        size = self.scrollable_content_region.size
        return size.width, size.height

    @property
    def text(self) -> str:
        """What is painted, as plain text."""
        return "\n".join(strip.text for strip in self._strips)

    @property
    def allow_vertical_scroll(self) -> bool:
        """Only where rows are out of sight: else the arrows move what the panel stands in."""
        return self.virtual_size.height > self.size.height

    @property
    def allow_horizontal_scroll(self) -> bool:
        """Only where rows are wider than the panel."""
        return self.virtual_size.width > self.size.width

    def on_resize(self) -> None:
        """Whoever paints must know."""
        if self._strips:
            self.post_message(self.Moved())

    def show(self, strips: Sequence[Strip]) -> None:
        """Take new rows."""
        before, self._strips = self._strips, strips
        style, self._style = self._style, self.rich_style  # once, not for each row: it took a third of a frame
        size = Size(max((one.cell_length for one in strips), default=0), len(strips))
        if size != self.virtual_size or style != self._style:
            self.virtual_size = size
            self.refresh()
            return
        for row, (old, new) in enumerate(zip(before, strips, strict=True)):
            if old != new:  # most rows are as they were: half of drawing a frame was drawing them again
                self.refresh_line(row)

    def render_line(self, y: int) -> Strip:
        """One visible row."""
        left, top = self.scroll_offset
        row, style = y + int(top), self._style
        if row >= len(self._strips):
            return Strip.blank(self.size.width, style)
        strip = self._strips[row].crop_extend(int(left), int(left) + self.size.width, style)
        return strip.apply_style(style)
