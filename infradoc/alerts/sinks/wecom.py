"""WeCom (Enterprise WeChat) group robots: markdown of at most 4096 bytes, twice what its plain text may have.

What its codes mean is from the list of all error codes (developer.work.weixin.qq.com/document/path/90313): -1 busy,
45009 calls over the limit (20 a minute, path/91770; who is over a limit of minutes is kept out for 60 s, path/90454),
45033 too many at once, 93000 address unknown or robot removed from the group, 93004 robot stopped, 93008 not in the
group. It says that only failures of the system are to be tried again, so every other code is final.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infradoc.alerts.backoff import Limit
from infradoc.alerts.clean import cut_bytes
from infradoc.alerts.render import Rendered, render
from infradoc.alerts.sinks.base import Answer, Codes, Outcome, Request, Sink, as_json, by_code
from infradoc.alerts.sinks.fit import without_markup
from infradoc.alerts.words import COLON

MOST_BYTES = 4096
COLOURS = {"critical": "warning", "warning": "warning", "info": "info", "resolved": "info"}
_CODES = Codes(keys=("errcode",), retry={45009: 60.0, 45033: None, -1: None}, gone=frozenset({93000, 93004, 93008}))


class WeComSink(Sink):
    """The address holds the key."""

    kind = "wecom"
    limits = (Limit(20, 60.0),)
    concurrency = 1

    def request(self, message: Mapping[str, Any], now: float) -> Request:
        """Markdown in which only we write markup."""
        text = cut_bytes(markdown(render(message, self.config.lang), self.config.lang), MOST_BYTES)
        body = as_json({"msgtype": "markdown", "markdown": {"content": text}})
        return Request(self.address(), {"Content-Type": "application/json; charset=utf-8"}, body)

    def judge(self, answer: Answer, now: float) -> Outcome:
        """`errcode` in the body."""
        return by_code(answer, now, _CODES)


def markdown(rendered: Rendered, lang: str) -> str:
    """Headline in colour, titles in bold, labels as they are."""
    colour = COLOURS.get(rendered.mood, "info")
    parts = [f'<font color="{colour}">{without_markup(rendered.headline)}</font>']
    for paragraph in rendered.paragraphs:
        lines = [f"**{without_markup(paragraph.title)}**"]
        lines += [
            f"{label}{COLON[lang]}{without_markup(value)}" if label else without_markup(value)
            for label, value in paragraph.lines
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
