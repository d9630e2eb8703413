"""Feishu (Lark) custom bots: a card of plain text, signed with the timestamp in seconds."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from infradoc.alerts.backoff import Limit
from infradoc.alerts.render import render
from infradoc.alerts.sinks.base import Answer, Outcome, Request, Sink, by_code
from infradoc.alerts.sinks.fit import fitted, paragraphs_text

MOST_BYTES = 20 * 1000  # the documents say 20 KB and not which
COLOURS = {"critical": "red", "warning": "orange", "info": "blue", "resolved": "green"}
# Too many requests: of the tenant, of the chat, at the gateway; the last two are internal faults there.
_RETRY: dict[int, float | None] = {11232: 60.0, 11233: 60.0, 230020: 60.0, 99991400: 60.0, 10001: None, 10002: None}
_GONE = frozenset({19001})


class FeishuSink(Sink):
    """The address holds the key; with `secret_env` or `secret_file` messages are signed."""

    kind = "feishu"
    limits = (Limit(5, 1.0), Limit(100, 60.0))
    concurrency = 2

    def request(self, message: Mapping[str, Any], now: float) -> Request:
        """Signed at the moment of sending: Feishu refuses timestamps older than an hour."""
        seconds = str(int(now))
        secrets = self.secrets()
        signed = {"timestamp": seconds, "sign": sign(secrets[0], seconds)} if secrets else {}
        rendered = render(message, self.config.lang)
        title = {"tag": "plain_text", "content": rendered.headline[:200]}

        def build(text: str) -> dict[str, Any]:
            header = {"title": title, "template": COLOURS.get(rendered.mood, "blue")}
            elements = [{"tag": "div", "text": {"tag": "plain_text", "content": text}}]
            return {**signed, "msg_type": "interactive", "card": {"header": header, "elements": elements}}

        body = fitted(build, paragraphs_text(rendered, self.config.lang), MOST_BYTES)
        return Request(self.address(), {"Content-Type": "application/json; charset=utf-8"}, body)

    def judge(self, answer: Answer, now: float) -> Outcome:
        """`code` in the body; old bots say `StatusCode`."""
        return by_code(answer, now, ("code", "StatusCode"), _RETRY, _GONE)


def sign(secret: str, seconds: str) -> str:
    """The key is timestamp, newline, secret; the message is empty."""
    return base64.b64encode(hmac.new(f"{seconds}\n{secret}".encode(), b"", hashlib.sha256).digest()).decode()
