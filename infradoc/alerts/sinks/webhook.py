"""Generic JSON, signed as Standard Webhooks says: id, timestamp and signature in headers; several secrets in turn."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from standardwebhooks.webhooks import Webhook

from infradoc.alerts.sinks.base import Request, Sink, as_json
from infradoc.alerts.sinks.public import public_incident
from infradoc.alerts.words import rfc3339
from infradoc.sources.credentials import SecretError

LEAST_BYTES = 16  # the standard says 24 to 64; some services hand out shorter ones


class WebhookSink(Sink):
    """One request per notification of a group; unsigned when no secret is configured."""

    kind = "webhook"
    takes_changes = True

    def request(self, message: Mapping[str, Any], now: float) -> Request:
        """Signed at the moment of sending: receivers refuse timestamps older than five minutes."""
        body = as_json(payload(message, self.config.lang))
        headers = {"Content-Type": "application/json", "webhook-id": str(message["id"]), **self.auth_headers()}
        headers["webhook-timestamp"] = str(int(now))
        signatures = self._signatures(str(message["id"]), now, body.decode())
        if signatures:
            headers["webhook-signature"] = " ".join(signatures)
        return Request(self.address(), headers, body)

    def check(self) -> None:
        """As the base, and every secret must be one of Standard Webhooks. Raises SecretError."""
        super().check()
        self._signatures("check", 0.0, "")

    def _signatures(self, message_id: str, now: float, body: str) -> list[str]:
        moment = datetime.fromtimestamp(int(now), tz=UTC)
        return [Webhook(self._bytes(secret)).sign(message_id, moment, body) for secret in self.secrets()]

    def _bytes(self, secret: str) -> bytes:
        """Decoded strictly: the library skips what is no base64, and would sign with what is left of a wrong secret."""
        text = secret.removeprefix("whsec_")
        try:
            found = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        except (binascii.Error, ValueError):
            found = b""
        if len(found) < LEAST_BYTES:
            message = f"A secret of {self.name} is none of Standard Webhooks."
            raise SecretError(message, "It is whsec_ and base64, as `openssl rand -base64 24` makes it.")
        return found


def payload(message: Mapping[str, Any], lang: str) -> dict[str, Any]:
    """The body: type, timestamp and data."""
    data: dict[str, Any] = {"id": message["id"], "group": message["group"], "status": message["status"]}
    if message["kind"] == "change":
        data["change"] = message["change"]
    else:
        data["repeat"] = message["repeat"]
        data["incidents"] = [public_incident(view, lang) for view in message["incidents"]]
    return {"type": f"infradoc.{message['kind']}", "timestamp": rfc3339(message["created"]), "data": data}
