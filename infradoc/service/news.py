"""What a look at a target has that is new, as lines: findings that fired or ended, a server that went or came back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infradoc.fleet.model import Watched
from infradoc.service.journal_lines import Lines
from infradoc.service.words import say


class News:
    """By target, each told once. Used under the lock of the watch."""

    def __init__(self, lines: Lines, lang: str) -> None:
        self._lines, self._lang = lines, lang
        self._known: dict[str, dict[str, str]] = {}  # target -> finding -> title
        self._lost: set[str] = set()

    def of_server(self, now: float, state: Watched) -> None:
        """A server that went or came back since the look before."""
        if not state.up and state.name not in self._lost:
            self._lost.add(state.name)
            why = state.error or self._text("no_answer")
            self._lines.say(now, "lost", self._text("lost", target=state.name, why=why))
        elif state.up and state.name in self._lost:
            self._lost.discard(state.name)
            self._lines.say(now, "back", self._text("answers_again", target=state.name))

    def of_findings(self, now: float, state: Watched, found: Mapping[str, Mapping[str, Any]], known: bool) -> None:
        """Findings that are new or over since the look before. `known`: whether those that are not there are over."""
        held = self._known.setdefault(state.name, {})
        for name, finding in found.items():
            if name not in held:
                severity = self._text(str(finding["severity"]))
                text = self._text("fired", target=state.name, severity=severity, id=name, title=finding["title"])
                more = {"target": state.name, "finding": name, "severity": finding["severity"]}
                self._lines.say(now, "fired", text, **more)
        for name in [one for one in held if known and one not in found]:
            text = self._text("resolved", target=state.name, id=name, title=held.pop(name))
            self._lines.say(now, "resolved", text, target=state.name, finding=name)
        held.update({name: str(finding["title"]) for name, finding in found.items()})

    def forget(self, name: str) -> None:
        """The target is watched no more."""
        self._known.pop(name, None)
        self._lost.discard(name)

    def _text(self, key: str, /, **parts: object) -> str:
        return say(self._lang, key, **parts)
