"""The watch's own metrics page: what it finds at each target, and the signals that no server shows by itself."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import (
    CollectorRegistry,
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    UnknownMetricFamily,
)
from prometheus_client.exposition import generate_latest

from infradoc.errors import visible
from infradoc.fleet.fleet import Fleet
from infradoc.fleet.model import Watched
from infradoc.fleet.watcher import TargetWatcher
from infradoc_rules.promql import is_stale

# Families that come from the host, the GPUs, a log or a client: a Prometheus that scrapes only the server lacks them.
OWN_FAMILIES = ("client_", "gpu_", "host_", "log_", "proc_", "target_", "torch_")
_MOST_SERIES = 2000  # of one target; a log with a label per request must not become a page of gigabytes
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class OwnFigures:
    """Of the watch itself. `sinks`: per sink its `waiting`, `dead`, `delivered` messages, and why it is `disabled`."""

    started: float
    troubles: int
    firing: Mapping[str, int]
    sinks: Mapping[str, Mapping[str, Any]]


class Exporter:
    """Renders the page from the newest states; asks no target anything."""

    def __init__(self, fleet: Fleet, own: Callable[[], OwnFigures], clock: Callable[[], float] = time.time) -> None:
        self._fleet, self._own_figures, self._clock = fleet, own, clock
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def page(self) -> bytes:
        """The page in the text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """What prometheus-client asks for at each scrape."""
        states = self._fleet.states
        yield from self._states(states)
        yield from self._own()
        yield from self._series(self._fleet.targets)

    def _states(self, states: Iterable[Watched]) -> Iterator[Metric]:
        up = GaugeMetricFamily("infradoc_target_up", "Whether the target answered at the last look.", labels=["target"])
        age = GaugeMetricFamily("infradoc_target_look_age_seconds", "Since the last look ended.", labels=["target"])
        looks = CounterMetricFamily("infradoc_target_looks", "Looks at the target.", labels=["target"])
        status = GaugeMetricFamily("infradoc_target_status", "1 for the status it has.", labels=["target", "status"])
        finding = GaugeMetricFamily(
            "infradoc_finding", "Confidence of what holds right now.", labels=["target", "finding", "severity", "role"]
        )
        vital = GaugeMetricFamily("infradoc_vital", "Vitals of report v1.", labels=["target", "name"])
        now = self._clock()
        for state in states:
            name = visible(state.name)
            up.add_metric([name], float(state.up))
            looks.add_metric([name], state.looks)
            status.add_metric([name, state.status], 1.0)
            if state.tick_time is not None:
                age.add_metric([name], max(0.0, now - state.tick_time))
            for one in state.findings:
                finding.add_metric([name, one["id"], one["severity"], one["role"]], one["confidence"])
            for key, value in state.vitals.items():
                if value is not None:
                    vital.add_metric([name, key], value)
        yield from (up, age, looks, status, finding, vital)

    def _own(self) -> Iterator[Metric]:
        own = self._own_figures()
        yield GaugeMetricFamily("infradoc_watch_start_time_seconds", "When this watch began.", value=own.started)
        yield GaugeMetricFamily("infradoc_watch_troubles", "Parts that do not work at present.", value=own.troubles)
        firing = GaugeMetricFamily("infradoc_incidents_firing", "Open incidents.", labels=["severity"])
        messages = GaugeMetricFamily("infradoc_alert_messages", "Kept messages.", labels=["sink", "state"])
        off = GaugeMetricFamily("infradoc_alert_sink_disabled", "1 when a sink was switched off.", labels=["sink"])
        for severity, count in own.firing.items():
            firing.add_metric([severity], count)
        for sink, figures in own.sinks.items():
            for state in ("waiting", "dead", "delivered"):
                messages.add_metric([sink, state], figures[state])
            off.add_metric([sink], float(bool(figures["disabled"])))
        yield from (firing, messages, off)

    def _series(self, watchers: Iterable[TargetWatcher]) -> Iterator[Metric]:
        families: dict[str, UnknownMetricFamily] = {}
        for watcher in watchers:
            rows = _newest(watcher)
            for name, labels, value in rows[:_MOST_SERIES]:
                family = families.setdefault(name, UnknownMetricFamily(name, "A canonical signal, as last seen."))
                family.add_sample(name, {**labels, "target": visible(watcher.state.name)}, value)
        yield from families.values()


def _newest(watcher: TargetWatcher) -> list[tuple[str, dict[str, str], float]]:
    """The last value of each own series that is not stale."""
    rows = []
    with watcher.reading() as frame:
        for name in sorted(watcher.target.store.names):
            if not name.startswith(OWN_FAMILIES):
                continue
            for series in frame.select(name):
                value = float(series.values[-1])
                if not is_stale(value) and all(_LABEL.fullmatch(label) for label in series.labels):
                    rows.append((name, {key: str(text) for key, text in series.labels.items()}, value))
    return rows
