"""Slack's incoming webhooks: blocks of plain text, so that nothing in a model's name becomes markup or a mention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infradoc.alerts.backoff import Limit
from infradoc.alerts.render import plain_lines, render
from infradoc.alerts.sinks.base import Answer, Outcome, Request, Sink, as_json, by_status, said

MOST_HEADER, MOST_SECTION, MOST_BLOCKS = 150, 3000, 50
_GONE = ("no_service", "no_active_hooks", "invalid_token", "channel_is_archived", "channel_not_found", "no_team")


class SlackSink(Sink):
    """The address holds the key: it comes from `url_env` or `url_file`."""

    kind = "slack"
    limits = (Limit(1, 1.0),)  # Slack takes one message a second and webhook
    concurrency = 2

    def request(self, message: Mapping[str, Any], now: float) -> Request:
        """A header, and a section per incident."""
        return Request(
            self.address(), {"Content-Type": "application/json"}, as_json(payload(message, self.config.lang))
        )

    def judge(self, answer: Answer, now: float) -> Outcome:
        """A message that was taken is answered with the word ok."""
        body = answer.body.decode(errors="replace").strip()
        if 200 <= answer.status < 300 and body != "ok":
            return Outcome("retry", f"HTTP {answer.status} without the word ok{said(answer)}", None, True)
        if answer.status in (403, 404, 410) and body in _GONE:
            return Outcome("disable", f"The receiver does not know this address ({body}).")
        return by_status(answer, now)


def payload(message: Mapping[str, Any], lang: str) -> dict[str, Any]:
    """The body. `text` is what notifications on phones show."""
    rendered = render(message, lang)
    blocks: list[dict[str, Any]] = [{"type": "header", "text": _plain(rendered.headline, MOST_HEADER)}]
    for paragraph in rendered.paragraphs[: MOST_BLOCKS - 1]:
        lines = [paragraph.title, *plain_lines(paragraph, lang)]
        blocks.append({"type": "section", "text": _plain("\n".join(lines), MOST_SECTION)})
    return {"text": escaped(rendered.headline, 300), "mrkdwn": False, "blocks": blocks}


def _plain(text: str, most: int) -> dict[str, Any]:
    return {"type": "plain_text", "text": escaped(text, most), "emoji": False}


def escaped(text: str, most: int) -> str:
    """`text` with Slack's three control characters escaped, in at most `most` characters, no escape cut in two."""
    out: list[str] = []
    size = 0
    for character in text:
        piece = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}.get(character, character)
        size += len(piece)
        if size > most - 1:
            return "".join(out) + "…"
        out.append(piece)
    return "".join(out)
