"""A recording as readings with their own times, in the order in which they happened.

Files: `scrapes.jsonl.gz` (pages), `host.jsonl.gz`, `gpu.jsonl.gz` (a row per look at the GPUs, see `gpu_rows`),
`client.jsonl`, `server.log`, `launch.txt`, `meta.json`. All but the scrapes or the log are optional.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infradoc.model import Reading
from infradoc.sources.archive import RecordingError, RecordingFiles
from infradoc.sources.client import PROVIDES as CLIENT_PROVIDES
from infradoc.sources.client import ClientTotals, finish_time, is_unfinished, refusals
from infradoc.sources.gpu_rows import PROVIDES as GPU_PROVIDES
from infradoc.sources.gpu_rows import ROW_FILE, GpuRows, row_source
from infradoc.sources.host_rows import PROVIDES as HOST_PROVIDES
from infradoc.sources.host_rows import HostRows
from infradoc.sources.launch import launch_facts, system_of
from infradoc.sources.log import PROVIDES as LOG_PROVIDES
from infradoc.sources.log import scan_recorded
from infradoc.sources.mapping import PageMapper, UnknownPage, unknown_page
from infradoc.sources.rows import is_number, row_time
from infradoc_rules.model import Event, Fact


@dataclass(frozen=True, slots=True)
class RecordedTick:
    """All that became known up to `now` (Unix seconds) since the tick before."""

    now: float
    readings: list[Reading]


class Recording:
    """One recording, opened. Damaged lines are counted in `bad_lines`, never fatal."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = RecordingFiles(path)
        self.bad_lines = 0
        self.unparsed_lines = 0
        self.launch = self._files.text("launch.txt") if "launch.txt" in self._files.names else ""
        self.meta = self._meta()
        self._mapper = PageMapper()
        self.provides: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """Files that are there."""
        return self._files.names

    @property
    def has_series(self) -> bool:
        """Whether there is anything to replay tick by tick."""
        return "scrapes.jsonl.gz" in self.names

    def _meta(self) -> dict[str, Any]:
        if "meta.json" not in self._files.names:
            return {}
        try:
            data = json.loads(self._files.text("meta.json"))
        except (ValueError, RecursionError):
            self.bad_lines += 1
            return {}
        return data if isinstance(data, dict) else {}

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        """Objects of a JSON-lines file; lines that are none are counted."""
        if name not in self._files.names:
            return
        for line in self._files.lines(name):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                self.bad_lines += 1
                continue
            if isinstance(row, dict):
                yield row
            else:
                self.bad_lines += 1

    def ticks(self, since: float | None = None, until: float | None = None) -> Iterator[RecordedTick]:
        """Ticks in order of time, one per scrape. Without scrapes: one per host row, or a single one for logs alone.

        `since` and `until` (Unix seconds) leave out scrapes and what happened outside them.
        """
        events, log_facts = self._logs()
        start = [Reading("launch", 0.0, facts=self._launch_facts()), Reading("log", 0.0, facts=log_facts)]
        moments = self._scrapes() if self.has_series else self._host_moments()
        feeds = _Feeds(self, events)
        seen = False
        for time, reading in moments:
            if until is not None and time > until:
                break
            if since is not None and time < since:
                feeds.skip_until(time)
                continue
            readings = feeds.until(time)
            if not seen:
                readings = [_at(reading, time) for reading in start] + feeds.untimed(time) + readings
                seen = True
            yield RecordedTick(time, [*readings, *([reading] if reading is not None else [])])
        if not seen:
            now = feeds.last_time()
            yield RecordedTick(now, [_at(reading, now) for reading in start] + feeds.untimed(now) + feeds.until(now))

    def _launch_facts(self) -> list[Fact]:
        facts = launch_facts(self.launch) if self.launch else []
        for key in ("system", "version"):
            if isinstance(self.meta.get(key), str):
                facts.append(Fact(f"target.{key}", self.meta[key], "file", "meta.json"))
        return facts

    def _scrapes(self) -> Iterator[tuple[float, Reading | None]]:
        for row in self.rows("scrapes.jsonl.gz"):
            time = row_time(row)
            if time is None:
                self.bad_lines += 1
                continue
            yield time, self._scrape(time, row)

    def _scrape(self, time: float, row: dict[str, Any]) -> Reading:
        body, status, url = row.get("body"), row.get("status"), str(row.get("url") or "the server")
        if status != 200 or not isinstance(body, str):
            why = str(row.get("error") or f"status {status}")
            return Reading("metrics", time, error=f"{url} gave no page: {why}.")
        try:
            page = self._mapper.page(body.encode("utf-8", "replace"), time)  # JSON may hold lone surrogates
        except UnknownPage as unknown:
            return Reading("metrics", time, error=" ".join(unknown_page(url, unknown.names)))
        self.provides |= self._mapper.provides
        self.unparsed_lines = max(self.unparsed_lines, page.garbage)
        facts = [Fact("target.system", str(self._mapper.system), "metrics", "scrapes.jsonl.gz"), *page.facts]
        seconds = row.get("seconds")
        return Reading(
            "metrics",
            time,
            page.samples,
            facts=facts,
            seconds=float(seconds) if is_number(seconds) else 0.0,
        )

    def _host_moments(self) -> Iterator[tuple[float, Reading | None]]:
        for row in self.rows("host.jsonl.gz"):
            time = row_time(row)
            if time is not None:
                yield time, None

    def _logs(self) -> tuple[list[Event], list[Fact]]:
        """Events and facts of all log files."""
        events: list[Event] = []
        facts: dict[str, Fact] = {}
        times = self._times() if self._files.logs else []
        for name in self._files.logs:
            found = scan_recorded(self._files.lines(name), name, system_of(self.launch), times)
            events += found.events
            facts.update({**found.facts, **facts})
            self.unparsed_lines += found.unparsed
        return events, list(facts.values())

    def _times(self) -> list[float]:
        """First and last time of the scrapes, or of the host rows where there are none."""
        name = "scrapes.jsonl.gz" if self.has_series else "host.jsonl.gz"
        times = [time for row in self.rows(name) if (time := row_time(row)) is not None]
        return [times[0], times[-1]] if times else []


class _Feeds:
    """Host, GPU and client rows and log events beside the scrapes, handed out up to a time."""

    def __init__(self, recording: Recording, events: list[Event]) -> None:
        self._recording = recording
        self._host_rows = HostRows()
        self._host = [row for row in recording.rows("host.jsonl.gz") if row_time(row) is not None]
        self._host.sort(key=lambda row: float(row["t"]))
        self._gpu_rows: dict[str, GpuRows] = {}  # by the source that made them: two vendors may be in one host
        self._gpu = [row for row in recording.rows(ROW_FILE) if row_time(row) is not None]
        self._gpu.sort(key=lambda row: float(row["t"]))
        client = [(finish_time(row), row) for row in recording.rows("client.jsonl")]
        self._client = sorted(
            ((time, row) for time, row in client if time is not None and not is_unfinished(row)),
            key=lambda pair: pair[0],
        )
        self._totals = ClientTotals()
        self._timed = sorted((event for event in events if event.time is not None), key=_event_time)
        self._untimed = [event for event in events if event.time is None]
        self._at = {"host": 0, "gpu": 0, "client": 0, "log": 0}
        provides: set[str] = set()
        if self._host:
            provides |= HOST_PROVIDES
        if self._gpu:
            provides |= GPU_PROVIDES
        if client:
            provides |= CLIENT_PROVIDES
        if events:
            provides |= LOG_PROVIDES
        recording.provides |= provides

    def untimed(self, now: float) -> list[Reading]:
        """Events whose time is not known: their order is all there is, so they are given at the start."""
        return [Reading("log", now, events=self._untimed)] if self._untimed else []

    def skip_until(self, time: float) -> None:
        """Pass over what happened before the part that is asked for; counters keep their sums."""
        self.until(time)

    def until(self, time: float) -> list[Reading]:
        """Readings of the sources beside the scrapes for (last, time]."""
        readings: list[Reading] = []
        for row in self._take("host", self._host, lambda row: float(row["t"]), time):
            readings.append(Reading("host", float(row["t"]), self._host_rows.samples(row)))
        for row in self._take("gpu", self._gpu, lambda row: float(row["t"]), time):
            readings.append(self._gpu_rows.setdefault(row_source(row), GpuRows()).reading(row))
        if self._client:
            refused: list[Event] = []
            for _, row in self._take("client", self._client, lambda pair: pair[0], time):
                self._totals.add(row)
                refused += refusals(row)
            readings.append(Reading("client", time, self._totals.samples(time), refused))
        events = self._take("log", self._timed, _event_time, time)
        if events:
            readings.append(Reading("log", time, events=events))
        return readings

    def _take(self, name: str, rows: list[Any], time_of: Any, until: float) -> list[Any]:
        start = end = self._at[name]
        while end < len(rows) and time_of(rows[end]) <= until:
            end += 1
        self._at[name] = end
        return rows[start:end]

    def last_time(self) -> float:
        """The newest time that anything has; 0.0 when nothing has one."""
        times = [float(row["t"]) for row in (*self._host[-1:], *self._gpu[-1:])]
        times += [pair[0] for pair in self._client[-1:]]
        times += [_event_time(event) for event in self._timed[-1:]]
        return max(times, default=0.0)


def _event_time(event: Event) -> float:
    return event.time if event.time is not None else 0.0


def _at(reading: Reading, time: float) -> Reading:
    return Reading(reading.source, time, reading.samples, reading.events, reading.facts)


__all__ = ["RecordedTick", "Recording", "RecordingError"]
