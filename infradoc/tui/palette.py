"""The palette of commands in the language of the screen."""

from __future__ import annotations

from rich.text import Text
from textual.command import CommandList, CommandPalette, ProviderSource
from textual.widgets.option_list import Option


class Commands(CommandPalette):
    """Textual's palette; what it says by itself is said in the screen's words."""

    def __init__(self, placeholder: str, nothing: str, providers: ProviderSource | None = None) -> None:
        super().__init__(providers, placeholder=placeholder, id="--command-palette")
        self._nothing = nothing

    def _start_no_matches_countdown(self, search_value: str) -> None:
        """Textual's own text is English in every language."""
        self._stop_no_matches_countdown()

        def show() -> None:
            if search_value:
                self.query_one(CommandList).add_option(Option(Text(self._nothing), disabled=True, id=self._NO_MATCHES))
            self._list_visible = bool(search_value)

        self._no_matches_timer = self.set_timer(self._NO_MATCHES_COUNTDOWN, show)
