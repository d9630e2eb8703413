"""Sources that the configuration names and that show nothing: a lasting trouble of the watch, told once."""

from __future__ import annotations

from infradoc.fleet.model import Watched
from infradoc.service.troubles import Troubles
from infradoc.service.words import say

_LASTING_SECONDS = 3.0  # a log that is being rotated is away for a moment


class NamedSources:
    """By target. Of a server that is down nothing is said here: that it is lost says more."""

    def __init__(self, troubles: Troubles, lang: str) -> None:
        self._troubles, self._lang = troubles, lang
        self._since: dict[str, float] = {}

    def look(self, now: float, state: Watched) -> None:
        """Note what a look at a target left to be told."""
        if not state.up:
            return
        name = state.name
        if not state.error:
            self._since.pop(name, None)
            self._troubles.note(_part(name), "", say(self._lang, "sources_again", target=name))
        elif now - self._since.setdefault(name, now) >= _LASTING_SECONDS:
            self._troubles.note(_part(name), say(self._lang, "no_source", target=name, why=state.error))

    def forget(self, name: str) -> None:
        """The target is watched no more."""
        self._since.pop(name, None)
        self._troubles.forget(_part(name))


def _part(name: str) -> str:
    return f"target {name}"
