"""Refusals that two places tell of: the server's log and the client that got the answer. They happened once."""

from __future__ import annotations

from collections.abc import Iterable

from infradoc_rules.model import Event

_TWICE_TOLD = frozenset({"request_rejected_length"})
_MOST_KEYS = 10_000  # pairs of lengths remembered; a longer watch starts to count anew

_Key = tuple[str, object, object]


class Twins:
    """Lets an event pass only if its source has now told of it more often than any other source did.

    Of one refusal log and client tell the same two lengths, in no fixed order and with clocks of their own. So the
    number of refusals with the same lengths is the largest that one source tells, not the sum; where only one of them
    tells of any, all of its pass.
    """

    def __init__(self) -> None:
        self._told: dict[_Key, dict[str, int]] = {}

    def once(self, source: str, events: Iterable[Event]) -> list[Event]:
        """The events of one reading without those that another source has told of already."""
        return [event for event in events if self._is_new(source, event)]

    def _is_new(self, source: str, event: Event) -> bool:
        lengths = event.fields.get("tokens"), event.fields.get("limit")
        if event.name not in _TWICE_TOLD or None in lengths:
            return True
        if len(self._told) > _MOST_KEYS:
            self._told.clear()
        counts = self._told.setdefault((event.name, *lengths), {})
        most = max(counts.values(), default=0)
        counts[source] = counts.get(source, 0) + 1
        return counts[source] > most
