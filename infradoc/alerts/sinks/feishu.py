"""Feishu (Lark) custom bots: a card of plain text, signed with the timestamp in seconds.

What its codes mean is from the guide to custom bots (open.feishu.cn/document/client-docs/bot-v3/add-custom-bot): 19021
signature, 19022 address not allowed, 19024 no keyword, 9499 "Bad Request", 11232 limit (100 a minute and 5 a second,
and whenever many send at the full hour). Not in it, but reported by those who send: 9499 also with "too many request"
or "frequency limited" (kubesphere/notification-manager#126), 19001 token invalid, 19007 bot not enabled, 2200 internal
error (openclaw#70879), 230020 and 99991400 limits of the chat and of the gateway.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from infradoc.alerts.backoff import Limit
from infradoc.alerts.render import render
from infradoc.alerts.sinks.base import Answer, Codes, Outcome, Request, Sink, by_code
from infradoc.alerts.sinks.fit import fitted, paragraphs_text

MOST_BYTES = 20 * 1000  # the documents say 20 KB and not which
COLOURS = {"critical": "red", "warning": "orange", "info": "blue", "resolved": "green"}
_CODES = Codes(
    keys=("code", "StatusCode"),  # an old bot has only the second; a new one says 0 there beside a code that is not
    retry={11232: 60.0, 230020: 60.0, 99991400: 60.0, 2200: None},
    gone=frozenset({19001, 19007}),
    hints={
        19021: "Check secret_env or secret_file of this sink, and this machine's clock.",
        19022: "Add this machine's address to those that the bot allows.",
        19024: "Make infradoc one of the bot's keywords: every message has that word.",
    },
)


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
        return by_code(answer, now, _CODES)


def sign(secret: str, seconds: str) -> str:
    """The key is timestamp, newline, secret; the message is empty."""
    return base64.b64encode(hmac.new(f"{seconds}\n{secret}".encode(), b"", hashlib.sha256).digest()).decode()
