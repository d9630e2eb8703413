"""Push to Alertmanager's API v2. It forgets what is not said again, so what fires is pushed every minute.

Each push carries an end a few pushes ahead: if this watch dies, its alerts end by themselves there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infradoc.alerts.incident import OPEN
from infradoc.alerts.sinks.base import Request, Sink, as_json
from infradoc.alerts.sinks.prometheus_labels import alert_annotations, alert_labels
from infradoc.alerts.words import rfc3339

_PATHS = r"/api/v[12](?:/alerts)?"  # v1 went with Alertmanager 0.27: its address is given v2
AHEAD = 4  # pushes that may be lost before an alert ends there; Prometheus uses the same


class AlertmanagerSink(Sink):
    """`url` is the server's base address, such as http://alertmanager:9093, with /api/v2/alerts or without."""

    kind = "alertmanager"
    heartbeat = 60.0

    def request(self, message: Mapping[str, Any], now: float) -> Request:
        """All incidents of the message in one push."""
        alerts = [self._alert(view, now) for view in message["incidents"]]
        headers = {"Content-Type": "application/json", **self.auth_headers()}
        return Request(self.address_of("/api/v2/alerts", _PATHS), headers, as_json(alerts))

    def _alert(self, view: Mapping[str, Any], now: float) -> dict[str, Any]:
        ended = view["ended"] or now
        # An end before the beginning is refused with 400; a clock that was set back could make one.
        end = now + AHEAD * self.heartbeat if view["status"] in OPEN else max(ended, view["since"] + 0.001)
        return {
            "labels": alert_labels(view),
            "annotations": alert_annotations(view, self.config.lang),
            "startsAt": rfc3339(view["since"]),
            "endsAt": rfc3339(end),
        }
