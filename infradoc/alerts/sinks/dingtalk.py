"""DingTalk custom robots: plain text, signed in the address with the timestamp in milliseconds.

What its codes mean is from the page on sending to groups (open.dingtalk.com/document/orgapp/
custom-robots-send-group-messages): -1 busy, 310000 refused by a security setting (keyword, signature, timestamp or
address: the words tell which), 400013 group dissolved, 400101 no such token, 400102 robot stopped, 400106 no such
robot, 410100 too fast, 430101 to 430104 contents. Not in it, but answered: 130101 "send too fast, exceed 20 times per
minute", 90030 the day's limit, 300001 and 300005 "token is not exist" (prometheus-webhook-dingtalk#91).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus

from infradoc.alerts.backoff import Limit
from infradoc.alerts.render import render
from infradoc.alerts.sinks.base import Answer, Codes, Outcome, Request, Sink, by_code
from infradoc.alerts.sinks.fit import fitted, paragraphs_text

MOST_BYTES = 20_000
BLOCKED = 600.0  # who sends more than 20 a minute is blocked for ten
_CODES = Codes(
    keys=("errcode",),
    retry={90030: BLOCKED, 130101: BLOCKED, 410100: BLOCKED, -1: None},
    gone=frozenset({300001, 300005, 400013, 400101, 400102, 400106}),
    hints={
        310000: "A security setting of the robot refused it: check secret_env or secret_file of this sink and this "
        "machine's clock, the addresses that the robot allows, and its keywords (every message has the word infradoc)."
    },
    too_many=BLOCKED,
)


class DingTalkSink(Sink):
    """The address holds the key; with `secret_env` or `secret_file` messages are signed."""

    kind = "dingtalk"
    limits = (Limit(20, 60.0),)
    concurrency = 1

    def request(self, message: Mapping[str, Any], now: float) -> Request:
        """Signed at the moment of sending: DingTalk refuses timestamps older than an hour."""
        rendered = render(message, self.config.lang)
        text = f"{rendered.headline}\n\n{paragraphs_text(rendered, self.config.lang)}"
        body = fitted(lambda content: {"msgtype": "text", "text": {"content": content}}, text, MOST_BYTES)
        return Request(self._signed(now), {"Content-Type": "application/json; charset=utf-8"}, body)

    def _signed(self, now: float) -> str:
        url, secrets = self.address(), self.secrets()
        if not secrets:
            return url
        milliseconds = str(int(now * 1000))
        joint = "&" if "?" in url else "?"
        return f"{url}{joint}timestamp={milliseconds}&sign={sign(secrets[0], milliseconds)}"

    def judge(self, answer: Answer, now: float) -> Outcome:
        """`errcode` in the body."""
        return by_code(answer, now, _CODES)


def sign(secret: str, milliseconds: str) -> str:
    """The key is the secret; the message is timestamp, newline, secret; ready for a query."""
    digest = hmac.new(secret.encode(), f"{milliseconds}\n{secret}".encode(), hashlib.sha256).digest()
    return quote_plus(base64.b64encode(digest))
