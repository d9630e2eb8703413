"""What stands over a screen: a question that takes a typed word, and the list of keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from infradoc.tui.paint import fitted


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
            yield Static(self._body, markup=False)
            yield Static(Text(self._say["type_word"].format(word=self._word)), id="how", markup=False)
            yield Input(id="word")

    def on_mount(self) -> None:
        """Ready to type."""
        self.set_focus(self.query_one(Input))

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


class Help(ModalScreen[None]):
    """All keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter", "close", "Close")]

    def __init__(self, keys: Sequence[tuple[str, str]], say: Mapping[str, str]) -> None:
        super().__init__()
        self._keys, self._say = keys, say

    def compose(self) -> ComposeResult:
        """Keys and what they do."""
        text = Text(f"{self._say['help_text']}\n\n", style="bold")
        for key, what in self._keys:
            text.append(fitted(key, 18), style="bold")
            text.append(f"{what}\n", style="not bold")
        text.append(f"\n{self._say['mark_legend']}", style="dim")
        with VerticalScroll(classes="dialog"):
            yield Static(text, markup=False)

    def action_close(self) -> None:
        """Back."""
        self.dismiss(None)
