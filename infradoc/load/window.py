"""What happened at the client between two moments, by the time of each event.

Each measurement is counted where it happened: a first token at its arrival, a gap at its end, a request at its end,
a token at its arrival. So a window is not biased against requests that are longer than itself, and two windows of a
closed loop can be compared although requests straddle their edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from infradoc.load.record import RequestRecord


@dataclass(slots=True)
class Window:
    """Samples of one class (or of all classes together) in one stretch of time; seconds."""

    begin: float
    end: float
    ttft: list[float] = field(default_factory=list)
    itl: list[float] = field(default_factory=list)
    e2e: list[float] = field(default_factory=list)  # of requests answered in full
    tokens: float = 0.0
    documents: int = 0
    finished: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    prompt_words: list[int] = field(default_factory=list)
    max_tokens: list[int] = field(default_factory=list)
    busy: float = 0.0  # request-seconds in flight; over the length = mean concurrency

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return self.end - self.begin

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens that arrived, a second."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def documents_per_second(self) -> float:
        """Documents tokenized, a second."""
        return self.documents / self.seconds if self.seconds > 0 else 0.0

    @property
    def concurrency(self) -> float:
        """Mean number of requests in flight."""
        return self.busy / self.seconds if self.seconds > 0 else 0.0

    @property
    def error_count(self) -> int:
        """Failed requests."""
        return sum(self.errors.values())

    def holds(self, moment: float) -> bool:
        """Whether a moment lies inside; the begin belongs to it, the end to the next window."""
        return self.begin <= moment < self.end


def cut_window(records: Iterable[RequestRecord], begin: float, end: float, cls: str | None = None) -> Window:
    """Collect what happened in [begin, end); `cls` keeps one request class."""
    window = Window(begin, end)
    for record in records:
        if cls is None or record.cls == cls:
            add(window, record)
    return window


def add(window: Window, record: RequestRecord) -> None:
    """Count one record's events that lie in the window."""
    window.busy += max(0.0, min(record.end, window.end) - max(record.start, window.begin))
    add_tokens(window, record)
    if not window.holds(record.end):
        return
    window.finished += 1
    if record.prompt_words is not None:
        window.prompt_words.append(record.prompt_words)
    if record.max_tokens is not None:
        window.max_tokens.append(record.max_tokens)
    if not record.ok:
        kind = record.error_kind or f"http_{record.status // 100}xx"
        window.errors[kind] = window.errors.get(kind, 0) + 1
        return
    window.e2e.append(record.e2e or 0.0)
    if record.path.endswith("/tokenize"):
        window.documents += 1


def add_tokens(window: Window, record: RequestRecord) -> None:
    """Count first token, gaps and tokens; an event stands for as many tokens as the request had per event."""
    if record.ttft is None:
        return
    events = len(record.itl) + 1
    per_event = (record.completion_tokens or events) / events
    for place, moment in enumerate(record.token_times()):
        if not window.holds(moment):
            continue
        window.tokens += per_event
        if place == 0:
            window.ttft.append(record.ttft)
        else:
            window.itl.append(record.itl[place - 1])


def classes_of(records: Sequence[RequestRecord]) -> list[str]:
    """Names of the request classes, sorted."""
    return sorted({record.cls for record in records})
