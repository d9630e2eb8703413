"""What Alertmanager sends to a webhook receiver (payload version 4): for receivers that speak it already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infradoc.alerts.incident import OPEN
from infradoc.alerts.sinks.base import Request, Sink, as_json
from infradoc.alerts.sinks.prometheus_labels import alert_annotations, alert_labels
from infradoc.alerts.words import rfc3339

NEVER = "0001-01-01T00:00:00Z"  # Go's zero time: the end of what has not ended


class AlertmanagerWebhookSink(Sink):
    """One request per notification of a group, as an Alertmanager would make it."""

    kind = "alertmanager_webhook"

    def request(self, message: Mapping[str, Any], now: float) -> Request:
        """The webhook-id header tells retries apart from news, which version 4 itself cannot."""
        headers = {"Content-Type": "application/json", "webhook-id": str(message["id"]), **self.auth_headers()}
        return Request(self.address(), headers, as_json(payload(message, self.name, self.config.lang)))


def payload(message: Mapping[str, Any], receiver: str, lang: str) -> dict[str, Any]:
    """The body of version 4."""
    alerts = [_alert(view, lang) for view in message["incidents"]]
    label = {"finding": "alertname", "incident": "fingerprint"}.get(message.get("grouped_by", ""), "target")
    return {
        "receiver": receiver,
        "status": message["status"],
        "alerts": alerts,
        "groupLabels": {label: message["group"]},
        "commonLabels": _common([alert["labels"] for alert in alerts]),
        "commonAnnotations": _common([alert["annotations"] for alert in alerts]),
        "externalURL": "",
        "version": "4",
        "groupKey": f'infradoc:{{{label}="{message["group"]}"}}',
        "truncatedAlerts": 0,
    }


def _alert(view: Mapping[str, Any], lang: str) -> dict[str, Any]:
    firing = view["status"] in OPEN
    return {
        "status": "firing" if firing else "resolved",
        "labels": alert_labels(view),
        "annotations": alert_annotations(view, lang),
        "startsAt": rfc3339(view["since"]),
        "endsAt": NEVER if firing or not view["ended"] else rfc3339(view["ended"]),
        "generatorURL": "",
        "fingerprint": view["fingerprint"],
    }


def _common(maps: Sequence[Mapping[str, str]]) -> dict[str, str]:
    if not maps:
        return {}
    first, *others = maps
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}
