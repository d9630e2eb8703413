"""What clients measured from outside: the lines of `client.jsonl`, a finished request each, as histograms."""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from infradoc.model import Reading, Sample
from infradoc.sources.rows import is_number
from infradoc.sources.tail import FileTail
from infradoc_rules.model import Event
from infradoc_rules.patterns import length_error

Labels = tuple[tuple[str, str], ...]

# Factor 1.26 (a tenth of a decade): a P99 read from these is at most 26 % off.
BOUNDS = tuple(float(f"{0.001 * 10 ** (step / 10):.4g}") for step in range(59))
PROVIDES = frozenset(
    {
        "client_requests_total",
        "client_time_to_first_token_seconds",
        "client_inter_token_latency_seconds",
        "client_request_seconds",
        "client_prompt_words_total",
        "client_prompt_tokens_total",
    }
)


class _Histogram:
    """Counts per bucket; labels are prepared once because every look repeats them."""

    def __init__(self, name: str, labels: Labels) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._sum = 0.0
        self._name = name
        self._labels = labels
        texts = [format(bound, "g") for bound in BOUNDS] + ["+Inf"]
        self._bucket_labels = [tuple(sorted((*labels, ("le", text)))) for text in texts]

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self._sum += seconds

    def samples(self, now: float) -> Iterable[Sample]:
        total = 0
        for labels, count in zip(self._bucket_labels, self._counts, strict=True):
            total += count
            yield Sample(f"{self._name}_bucket", labels, now, total)
        yield Sample(f"{self._name}_sum", self._labels, now, self._sum)
        yield Sample(f"{self._name}_count", self._labels, now, total)


class ClientTotals:
    """Running totals over request rows; `samples` gives them all under canonical names."""

    def __init__(self) -> None:
        self._histograms: dict[tuple[str, str], _Histogram] = {}
        self._counters: dict[tuple[str, Labels], float] = {}

    def add(self, row: Mapping[str, Any]) -> None:
        """Count one request. Unfinished ones (no status, cut by the end of the run) are left out."""
        if is_unfinished(row):
            return
        kind = str(row.get("class") or "default")
        outcome = outcome_of(row)
        self._count("client_requests_total", 1, outcome=outcome, **{"class": kind})
        if outcome not in ("ok", "length"):
            return
        self._observe("client_time_to_first_token_seconds", kind, row.get("ttft"))
        self._observe("client_request_seconds", kind, row.get("e2e"))
        gaps = row.get("itl")
        for gap in gaps if isinstance(gaps, list) else ():
            self._observe("client_inter_token_latency_seconds", kind, gap)
        words, tokens = row.get("prompt_words"), row.get("prompt_tokens")
        if is_number(words) and is_number(tokens):
            self._count("client_prompt_words_total", words, **{"class": kind})
            self._count("client_prompt_tokens_total", tokens, **{"class": kind})

    def _observe(self, name: str, kind: str, seconds: Any) -> None:
        if not is_number(seconds) or seconds < 0:
            return
        histogram = self._histograms.get((name, kind))
        if histogram is None:
            histogram = self._histograms[name, kind] = _Histogram(name, (("class", kind),))
        histogram.observe(seconds)

    def _count(self, name: str, amount: float, **labels: str) -> None:
        key = (name, tuple(sorted(labels.items())))
        self._counters[key] = self._counters.get(key, 0.0) + amount

    def samples(self, now: float) -> list[Sample]:
        """All totals at `now` (Unix seconds)."""
        found = [Sample(name, labels, now, value) for (name, labels), value in self._counters.items()]
        for histogram in self._histograms.values():
            found.extend(histogram.samples(now))
        return found


def is_unfinished(row: Mapping[str, Any]) -> bool:
    """Whether a request was still in flight when its recording ended."""
    return row.get("status") is None and "in flight" in str(row.get("error") or "")


def outcome_of(row: Mapping[str, Any]) -> str:
    """The outcome of a request: ok, length (cut at max_tokens), http_4xx, http_5xx, timeout, or cut."""
    status = row.get("status")
    error = str(row.get("error") or "").lower()
    if isinstance(status, int) and 400 <= status < 500:
        return "http_4xx"
    if isinstance(status, int) and status >= 500:
        return "http_5xx"
    if "timeout" in error or "timed out" in error:
        return "timeout"
    if status is None or error:
        return "cut"
    return "length" if row.get("finish_reason") == "length" else "ok"


def finish_time(row: Mapping[str, Any]) -> float | None:
    """When a request ended (Unix seconds), or None when the row does not say."""
    start, seconds = row.get("start"), row.get("e2e")
    if not is_number(start):
        return None
    return float(start) + (float(seconds) if is_number(seconds) else 0.0)


def refusals(row: Mapping[str, Any]) -> list[Event]:
    """The event behind a refused request, where the body of the refusal names a length limit."""
    status, error = row.get("status"), row.get("error")
    if not isinstance(status, int) or not 400 <= status < 500 or not isinstance(error, str):
        return []
    event = length_error(error)
    if event is None:
        return []
    return [replace(event, time=finish_time(row), phase="serving", source=f"client request {row.get('id', '?')}")]


class ClientSource:
    """Follows a growing `client.jsonl`. A file that is replaced or cut is read from its start again."""

    name = "client"
    interval = 0.0
    provides = PROVIDES

    def __init__(self, path: Path) -> None:
        self._path = path
        self._totals = ClientTotals()
        self._tail = FileTail(path)
        self._bad = 0
        self.new_lines: list[str] = []

    def is_supported(self) -> bool:
        """Whether the file is there yet."""
        return self._path.is_file()

    def why_not(self) -> str | None:
        """A phrase for the report when the file is missing."""
        if self.is_supported():
            return None
        return f"{self._path} is a folder" if self._path.is_dir() else f"there is no file {self._path}"

    @property
    def bad_lines(self) -> int:
        """Lines that were no request."""
        return self._bad + self._tail.dropped_lines

    def read(self, now: float) -> Reading:
        """Take in the lines written since the last look."""
        started = time.monotonic()
        self.new_lines = []
        events: list[Event] = []
        try:
            lines = self._tail.lines()
        except OSError as error:
            message = f"The client file {self._path} cannot be read: {error.strerror}."
            return Reading(self.name, now, error=message)
        for line in lines:
            events += self._take(line)
        return Reading(self.name, now, self._totals.samples(now), events, seconds=time.monotonic() - started)

    def _take(self, line: bytes) -> list[Event]:
        if not line.strip():
            return []
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError):
            self._bad += 1
            return []
        self._totals.add(row)
        self.new_lines.append(line.decode("utf-8", errors="replace"))
        return refusals(row)

    def close(self) -> None:
        """Nothing is held open."""
