"""What the client measured of one request: a line of the client measurements file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

_MESSAGE = re.compile(r'"message"\s*:\s*"((?:[^"\\]|\\.)*)')
_LONGEST_SAID = 240  # characters


@dataclass(slots=True)
class RequestRecord:
    """One finished request. Times are seconds; `start` is Unix time, all others are measured on a monotonic clock.

    `ttft` is None when no token came. `itl` holds the gaps between stream events, so the events lie at start + ttft,
    start + ttft + itl[0], and so on. `error_kind` is connect, timeout, http_4xx, http_5xx, cut or protocol.
    """

    id: int
    path: str
    start: float
    cls: str
    ttft: float | None = None
    e2e: float | None = None
    output_chunks: int = 0
    status: int = 0
    finish_reason: str | None = None
    error: str | None = None
    error_kind: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    max_tokens: int | None = None
    prompt_words: int | None = None
    itl: list[float] = field(default_factory=list)

    @property
    def end(self) -> float:
        """Unix time at which the request was over."""
        return self.start + (self.e2e or 0.0)

    @property
    def ok(self) -> bool:
        """Answered in full."""
        return self.error is None and self.status == 200

    def token_times(self) -> Iterator[float]:
        """Unix time of each stream event that carried output."""
        if self.ttft is None:
            return
        moment = self.start + self.ttft
        yield moment
        for gap in self.itl:
            moment += gap
            yield moment

    def to_line(self) -> str:
        """One JSON object without a line end; seconds rounded to 0.1 ms."""
        data = asdict(self)
        data["class"] = data.pop("cls")
        data["start"] = round(self.start, 4)
        for key in ("ttft", "e2e"):
            data[key] = None if data[key] is None else round(data[key], 4)
        data["itl"] = [round(gap, 4) for gap in self.itl]
        return json.dumps(data, ensure_ascii=False)


def from_line(line: str) -> RequestRecord | None:
    """Read one line; None for a torn or foreign line, or a request that never finished.

    Lines of other load generators are taken if they hold `start`, `e2e` and `status`.
    """
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or not isinstance(data.get("start"), int | float) or data.get("e2e") is None:
        return None
    return record_from(data)


def record_from(data: dict[str, Any]) -> RequestRecord | None:
    """Build a record from decoded JSON; None when a field has the wrong type."""
    try:
        return RequestRecord(
            id=int(data.get("id") or 0),
            path=str(data.get("path") or ""),
            start=float(data["start"]),
            cls=str(data.get("class") or ""),
            ttft=None if data.get("ttft") is None else float(data["ttft"]),
            e2e=float(data["e2e"]),
            output_chunks=int(data.get("output_chunks") or 0),
            status=int(data.get("status") or 0),
            finish_reason=data.get("finish_reason"),
            error=data.get("error"),
            error_kind=data.get("error_kind"),
            prompt_tokens=data.get("prompt_tokens"),
            completion_tokens=data.get("completion_tokens"),
            max_tokens=data.get("max_tokens"),
            prompt_words=data.get("prompt_words"),
            itl=[float(gap) for gap in data.get("itl") or ()],
        )
    except (TypeError, ValueError):
        return None


def said(record: RequestRecord) -> str:
    """What the server gave as the reason of a failure: `message` of its JSON, else its text; empty when none failed."""
    text = record.error or ""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):  # also an answer that was cut to be kept
        found = _MESSAGE.search(text)
        return " ".join((found.group(1) if found else text).split())[:_LONGEST_SAID]
    error = data.get("error", data) if isinstance(data, dict) else data
    message = error.get("message") if isinstance(error, dict) else error
    return " ".join(str(message or text).split())[:_LONGEST_SAID]
