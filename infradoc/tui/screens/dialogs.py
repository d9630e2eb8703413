"""What stands over a screen: a question that takes a typed word, and the list of keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from infradoc.tui.paint import broken


class Confirm(ModalScreen[bool]):
    """Asks for a word: one key pressed by mistake changes no server."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "no", "No")]

    def __init__(self, question: str, body: Text, word: str, say: Mapping[str, str]) -> None:
        super().__init__()
        self._question, self._body, self._word, self._say = question, body, word, say

    def compose(self) -> ComposeResult:
        """Question, change, word."""
        with VerticalScroll(classes="dialog", can_focus=False):
            yield Static(Text(self._question, style="bold"), markup=False)
            yield Static(self._body, id="body", markup=False)
            yield Static(Text(self._say["type_word"].format(word=self._word)), id="how", markup=False)
            yield Input(id="word")

    def on_mount(self) -> None:
        """Ready to type."""
        self.set_focus(self.query_one(Input))
        self.call_after_refresh(self._break)

    def on_resize(self) -> None:
        """Rows of another width."""
        self.call_after_refresh(self._break)

    def _break(self) -> None:
        """Chinese is broken between its characters."""
        body = self.query_one("#body", Static)
        if body.size.width > 0:
            body.update(broken(self._body, body.size.width))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Only the word itself counts."""
        if event.value.strip() == self._word:
            self.dismiss(True)
            return
        self.query_one("#how", Static).update(Text(self._say["wrong_word"].format(word=self._word), style="bold"))
        event.input.value = ""

    def action_no(self) -> None:
        """Leave everything as it is."""
        self.dismiss(False)


class Reading(ModalScreen[None]):
    """A text to read; any of the keys that end things closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter,c,l", "close", "Close"),
        Binding("j", "scroll(1)", "Down", show=False),
        Binding("k", "scroll(-1)", "Up", show=False),
    ]

    def __init__(self, text: RenderableType) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """The text in a frame that scrolls."""
        with VerticalScroll(classes="dialog"):
            yield Static(self._text, markup=False)

    def action_scroll(self, rows: int) -> None:
        """j and k."""
        self.query_one(VerticalScroll).scroll_relative(y=rows, animate=False)

    def action_close(self) -> None:
        """Back."""
        self.dismiss(None)


class Help(Reading):
    """All keys."""

    def __init__(self, keys: Sequence[tuple[str, str]], say: Mapping[str, str]) -> None:
        table = Table.grid(padding=(0, 2))
        for key, what in keys:
            table.add_row(Text(key, style="bold", no_wrap=True), Text(what))
        legend = Text(f"\n{say['mark_legend']}", style="dim")
        super().__init__(Group(Text(f"{say['help_text']}\n", style="bold"), table, legend))
