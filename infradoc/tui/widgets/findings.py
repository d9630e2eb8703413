"""The list of what was found; Enter opens one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from infradoc.fleet.model import Watched
from infradoc.tui.paint import one_line

Words = Mapping[str, str]


class FindingList(OptionList):
    """The findings of one target; rebuilt only when a line is another, so that the cursor stays."""

    def __init__(self, title: str) -> None:
        super().__init__(id="findings", markup=False, compact=True)
        self.border_title = title
        self._listed: list[tuple[str, str]] = []

    def show(self, state: Watched, say: Words) -> None:
        """List what holds; one line that says why where nothing does."""
        listed = [(str(one["id"]), finding_line(one, say)) for one in state.findings] or [("", nothing(state, say))]
        if listed == self._listed:
            return
        chosen = self.highlighted
        self.clear_options()
        if state.findings:
            self.add_options([Option(Text(line, no_wrap=True, overflow="ellipsis"), id=name) for name, line in listed])
            self.highlighted = min(chosen or 0, len(listed) - 1)
        else:
            self.add_option(Option(Text(listed[0][1], style="dim"), disabled=True))
        self._listed = listed


def nothing(state: Watched, say: Words) -> str:
    """Why the list is empty."""
    if state.error:
        return one_line(state.error)
    if not state.looks:
        return say["not_yet"]
    if not state.checked:
        return say["no_finding"]
    return say["checked_line"].format(n=len(state.checked), m=len(state.blind))


def finding_line(finding: Mapping[str, Any], say: Words) -> str:
    """One finding in the list."""
    role = "" if finding["role"] == "root" else f" ({say['symptom']})"
    severity = {"critical": "!!", "warning": "! ", "info": "  "}[str(finding["severity"])]
    title = one_line(finding["title"])
    return f"{severity} {title}{role}  {say['confidence']} {finding['confidence']:.0%}  {finding['id']}"
