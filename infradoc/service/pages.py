"""What the watch shows of itself over HTTP: metrics, health, findings, history and vitals."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infradoc.fleet.fleet import Fleet
from infradoc.service.exporter import Exporter, OwnFigures
from infradoc.service.history import History
from infradoc.service.http import Answer, Route, as_json, as_metrics, since

_LATE_PERIODS, _LATE_SECONDS = 10.0, 60.0  # a watcher that ended no look for so long is not well
_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Condition:
    """How the watch is: lasting troubles by part, and a sentence for each damaged file that was set aside."""

    troubles: Mapping[str, str]
    set_aside: Sequence[str]


class Pages:
    """Answers from what is known; no page asks a target anything."""

    def __init__(
        self,
        fleet: Fleet,
        history: History,
        figures: Callable[[], OwnFigures],
        condition: Callable[[], Condition],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._fleet, self._history, self._condition, self._clock = fleet, history, condition, clock
        self._exporter = Exporter(fleet, figures, clock)
        self._started = clock()

    def routes(self) -> dict[str, Route]:
        """By address, for the server. They raise InfradocError, and ValueError for a query that cannot be read."""
        return {
            "/metrics": lambda query: as_metrics(self._exporter.page()),
            "/health": lambda query: self._health(),
            "/findings": lambda query: as_json(self._findings()),
            "/history": lambda query: as_json(self._past(query)),
            "/vitals": lambda query: as_json(self._vitals(query)),
        }

    def _health(self) -> Answer:
        """503 when a watcher ended no look for long, or something cannot be stored; a dead target is no fault here."""
        now = self._clock()
        late = []
        for state in self._fleet.states:
            patience = max(_LATE_PERIODS * state.period, _LATE_SECONDS)
            if now - (state.tick_time or self._started) > patience:
                late.append(state.name)
        condition = self._condition()
        well = not late and not condition.troubles
        page = {"healthy": well, "late": late, "troubles": condition.troubles, "set_aside": condition.set_aside}
        return as_json(page, 200 if well else 503)

    def _findings(self) -> list[dict[str, Any]]:
        return [
            {"target": state.name, "status": state.status, "up": state.up, "findings": list(state.findings)}
            for state in self._fleet.states
        ]

    def _past(self, query: Mapping[str, str]) -> dict[str, Any]:
        begin, target = since(query, _DAY), query.get("target", "")
        return {
            "findings": self._history.findings(begin, target),
            "changes": self._history.changes(begin, target),
        }

    def _vitals(self, query: Mapping[str, str]) -> list[dict[str, Any]]:
        return self._history.vitals(since(query, _DAY), query.get("target", ""), query.get("name", "queue_depth"))
