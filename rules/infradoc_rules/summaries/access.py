"""What access lines say: requests refused for load, and requests open at the same time (Ollama's GIN lines).

Facts: access.refused? (answers that mean "too many": 429, and Ollama's 503). Where two lines or more say how long they
took: access.in_flight (the most that were open at once), access.timed (how many lines). Where the number of requests
worked on at once is known: access.beyond (how many requests were open while more than that number were),
access.beyond_share.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence

from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries.load import fact
from infradoc_rules.values import number

_LEAST_SECONDS = 1.0  # lines name whole seconds; listings and probes are answered at once
_WORK = ("generate", "chat", "completions", "embed")


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """The facts above."""
    codes = (429, 503) if system == "ollama" else (429,)
    refused = [event for event in events if event.name == "http_access" and event.fields.get("code") in codes]
    if refused:
        yield Fact("access.refused", sum(event.repeat for event in refused), "derived", refused[0].source)
    spans = [span for event in events if (span := _span(event)) is not None]
    if len(spans) < 2:
        return
    # Half a second less at the end: a request that begins as another ends is not open beside it.
    starts = sorted(start for start, _, _ in spans)
    ends = sorted(end - _LEAST_SECONDS / 2 for _, end, _ in spans)
    open_at = [bisect_right(starts, moment) - bisect_right(ends, moment) for moment in starts]
    place = spans[-1][2].source
    yield Fact("access.timed", len(spans), "derived", place)
    yield Fact("access.in_flight", max(open_at), "derived", place)
    limit = fact(facts, "max_num_seqs")
    if limit is None:
        return
    crowded = [start for start, count in zip(starts, open_at, strict=True) if count > limit]
    beyond = [
        event
        for start, end, event in spans
        if bisect_left(crowded, end - _LEAST_SECONDS / 2) > bisect_left(crowded, start)
    ]
    yield Fact("access.beyond", len(beyond), "derived", place)
    yield Fact("access.beyond_share", len(beyond) / len(spans), "derived", place)


def _span(event: Event) -> tuple[float, float, Event] | None:
    """(begin, end, event) of an answered request that took a while."""
    took = number(event.fields.get("seconds")) if event.name == "http_access" else None
    if took is None or event.time is None or took < _LEAST_SECONDS or event.fields.get("code") != 200:
        return None
    path = str(event.fields.get("path"))
    return (event.time - took, event.time, event) if any(word in path for word in _WORK) else None
