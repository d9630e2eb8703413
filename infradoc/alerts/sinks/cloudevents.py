"""CloudEvents 1.0 over HTTP, structured JSON: one event per incident and per applied change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from infradoc.alerts.sinks.base import Request, Sink, as_json
from infradoc.alerts.sinks.public import public_incident
from infradoc.alerts.words import rfc3339


class CloudEventsSink(Sink):
    """The event's id is that of the notification, so source and id tell retries apart from news."""

    kind = "cloudevents"
    per = "incident"
    takes_changes = True

    def request(self, message: Mapping[str, Any], now: float) -> Request:
        """One event in the request."""
        headers = {"Content-Type": "application/cloudevents+json; charset=UTF-8", **self.auth_headers()}
        return Request(self.address(), headers, as_json(event(message, self.config.lang)))


def event(message: Mapping[str, Any], lang: str) -> dict[str, Any]:
    """The event. `sequence` is the CloudEvents extension of that name: it orders the events of a subject."""
    made: dict[str, Any] = {
        "specversion": "1.0",
        "id": message["id"],
        "time": rfc3339(message["created"]),
        "datacontenttype": "application/json",
    }
    if message["kind"] == "change":
        source = _source(message["change"]["target"])
        return made | {"source": source, "type": "infradoc.change.applied", "data": message["change"]}
    view = message["incidents"][0]
    kind = "infradoc.test" if message["kind"] == "test" else f"infradoc.incident.{view['status']}"
    return made | {
        "source": _source(view["target"]),
        "type": kind,
        "subject": view["id"],
        "sequence": f"{view['sequence']:010d}",
        "data": public_incident(view, lang),
    }


def _source(target: str) -> str:
    return f"urn:infradoc:target:{quote(target, safe='')}"
