"""Slack's incoming webhooks: blocks of plain text, so that nothing in a model's name becomes markup or a mention.

A message that was taken is answered with the word ok, a refused one with a word and a status of 4xx or 5xx
(docs.slack.dev/messaging/sending-messages-using-incoming-webhooks, "Handling errors", and api.slack.com/changelog/
2016-05-17-changes-to-errors-for-incoming-webhooks); workflows and proxies answer {"ok": ..., "error": ...} with 200.
One message a second is let through, more is 429 with Retry-After (docs.slack.dev/apis/web-api/rate-limits).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infradoc.alerts.backoff import Limit, retry_after
from infradoc.alerts.render import plain_lines, render
from infradoc.alerts.sinks.base import Answer, Outcome, Request, Sink, as_json, by_status, said

MOST_HEADER, MOST_SECTION, MOST_BLOCKS = 150, 3000, 50
# The address, its channel or its workspace is no more, or an administrator forbade it until that is taken back.
_GONE = frozenset({
    "no_service", "no_service_id", "no_active_hooks", "invalid_token", "no_team", "team_disabled", "channel_not_found",
    "channel_is_archived", "action_prohibited", "posting_to_general_channel_denied", "account_inactive",
    "token_revoked",
})  # fmt: skip
_LATER = frozenset({
    "rollup_error", "ratelimited", "rate_limited", "internal_error", "fatal_error", "service_unavailable",
    "request_timeout",
})  # fmt: skip


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
        """By the word first: it says more than the status, which some proxies turn into 200."""
        taken, word = _answered(answer)
        good = 200 <= answer.status < 300
        if good and taken:
            return Outcome("delivered", f"HTTP {answer.status}")
        if word in _GONE:
            return Outcome("disable", f"The receiver does not take messages at this address any more ({word}).")
        if word in _LATER:
            after = retry_after(answer.headers.get("retry-after"), now)
            return Outcome("retry", f"HTTP {answer.status}: {word}", after, True)
        if good and word:
            return Outcome("dead", f"HTTP {answer.status}{said(answer)}")
        if good:
            return Outcome("retry", f"HTTP {answer.status} without the word ok{said(answer)}", None, True)
        return by_status(answer, now)


def _answered(answer: Answer) -> tuple[bool, str]:
    """Whether the message was taken, and the word that says why not, "" for none."""
    body = answer.json()
    if isinstance(body, dict):
        return body.get("ok") is True, str(body.get("error") or "")
    text = answer.body.decode(errors="replace").strip()
    return text == "ok", text if text in _GONE | _LATER else ""


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
