"""PagerDuty Events v2: trigger and resolve by dedup_key, and change events for applied fixes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infradoc.alerts.clean import cut_bytes
from infradoc.alerts.incident import OPEN
from infradoc.alerts.message import text_of
from infradoc.alerts.sinks.base import Answer, Outcome, Request, Sink, as_json, by_status
from infradoc.alerts.sinks.public import public_incident
from infradoc.alerts.words import rfc3339, word

HOST = "https://events.pagerduty.com"
MOST_BYTES = 512 * 1024
MOST_SUMMARY = 1024
_PATHS = r"/v2(?:/change)?/enqueue"


class PagerDutySink(Sink):
    """One event per incident. `url` may name another region (https://events.eu.pagerduty.com), with its path or not."""

    kind = "pagerduty"
    per = "incident"
    takes_changes = True

    def request(self, message: Mapping[str, Any], now: float) -> Request:
        """The routing key travels in the body, as the API asks."""
        headers = {"Content-Type": "application/json"}
        if message["kind"] == "change":
            change = {"routing_key": self.key(), "payload": _change(message)}
            return Request(self.address_of("/v2/change/enqueue", _PATHS, HOST), headers, as_json(change))
        view = message["incidents"][0]
        event = self._event(view)
        body = as_json(event)
        if len(body) > MOST_BYTES:
            event["payload"]["custom_details"] = {"incident": view["id"], "finding": view["finding"]}
            body = as_json(event)
        return Request(self.address_of("/v2/enqueue", _PATHS, HOST), headers, body)

    def _event(self, view: Mapping[str, Any]) -> dict[str, Any]:
        event: dict[str, Any] = {
            "routing_key": self.key(),
            "event_action": "trigger" if view["status"] in OPEN else "resolve",
            "dedup_key": f"infradoc-{view['fingerprint']}",
        }
        if event["event_action"] == "trigger":
            event |= {"client": "infradoc", "payload": self._payload(view)}
        return event

    def _payload(self, view: Mapping[str, Any]) -> dict[str, Any]:
        lang = self.config.lang
        mark = f" [{word('flapping', lang)}]" if view["status"] == "flapping" else ""
        summary = f"{text_of(view, lang)['title']} ({view['target']}){mark}"
        return {
            "summary": cut_bytes(summary, MOST_SUMMARY),
            "source": view["target"],
            "severity": view["severity"],
            "timestamp": rfc3339(view["since"]),
            "component": view["system"] or "llm-server",
            "class": view["finding"],
            "custom_details": public_incident(view, lang),
        }

    def judge(self, answer: Answer, now: float) -> Outcome:
        """202 is taken; 400 is an event that it will never take; 429 and 5xx later."""
        return by_status(answer, now)


def _change(message: Mapping[str, Any]) -> dict[str, Any]:
    change = message["change"]
    return {
        "summary": cut_bytes(f"{change['target']}: {change['summary']}", MOST_SUMMARY),
        "source": change["target"],
        "timestamp": rfc3339(message["created"]),
        "custom_details": {key: value for key, value in change.items() if value},
    }
