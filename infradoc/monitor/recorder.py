"""Keeps what a live target shows, once a period, until told to stop."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from infradoc import __version__
from infradoc.model import Reading
from infradoc.monitor.attach import Target
from infradoc.sources.base import RowSource, Source
from infradoc.sources.client import ClientSource
from infradoc.sources.host import HostSource
from infradoc.sources.launch_source import LaunchSource
from infradoc.sources.log import LogSource
from infradoc.sources.metrics_page import MetricsPageSource
from infradoc.sources.secrets import without_secrets
from infradoc.sources.writer import RecordingWriter
from infradoc_rules.model import Fact


class Recorder:
    """Reads the sources of one target and writes what they saw, before any mapping."""

    def __init__(self, target: Target, writer: RecordingWriter) -> None:
        self._target = target
        self._writer = writer
        self.looks = 0
        self.failed = 0
        self.last_error = ""
        self._facts: dict[str, Fact] = {}

    def look(self, now: float) -> None:
        """Read and write every source once. `now` is Unix seconds."""
        self.looks += 1
        for source in self._target.sources:
            if not source.is_supported() or (isinstance(source, LaunchSource) and source.command):
                continue
            self._keep(source, source.read(now))

    def _keep(self, source: Source, reading: Reading) -> None:
        self._facts.update({fact.name: fact for fact in reading.facts})
        if isinstance(source, MetricsPageSource):
            self._page(source, reading)
        elif isinstance(source, HostSource) and reading.error is None:
            self._writer.row("host.jsonl.gz", source.last_row)
        elif isinstance(source, RowSource):
            if source.last_row:  # also when a GPU is lost: the row says which
                self._writer.row(source.row_file, source.last_row)
        elif isinstance(source, ClientSource):
            for line in source.new_lines:
                self._writer.line("client.jsonl", line)
        elif isinstance(source, LogSource):
            for line in source.new_lines:
                self._writer.line("server.log", without_secrets(line))
        elif isinstance(source, LaunchSource) and source.command:
            self._writer.text("launch.txt", source.command + "\n")

    def _page(self, source: MetricsPageSource, reading: Reading) -> None:
        page = source.last_page
        row: dict[str, Any] = {"t": round(reading.time, 3), "url": source.page_url}
        if page is not None:
            row.update(status=page.status, seconds=round(page.seconds, 4))
            row["body"] = page.body.decode("utf-8", errors="replace")
        else:
            row["status"] = 0
        if reading.error is not None:
            row["error"] = reading.error
            self.failed += 1
            self.last_error = reading.error
        self._writer.row("scrapes.jsonl.gz", row)

    def finish(self) -> None:
        """Write `meta.json`: who recorded what, and what was recognised."""
        known = {
            name: self._facts[f"target.{name}"].value
            for name in ("system", "version")
            if f"target.{name}" in self._facts
        }
        meta = {
            "schema": "infradoc.recording/v1",
            "infradoc": __version__,
            "target": self._target.name,
            "looks": self.looks,
            "failed_scrapes": self.failed,
            **known,
        }
        self._writer.text("meta.json", json.dumps(meta, indent=1) + "\n")


def record(
    recorders: list[Recorder],
    seconds: float | None,
    period: float,
    stop: Callable[[], bool],
    wait: Callable[[float], object],
) -> None:
    """Look once a period at every target until `seconds` are over (None: for ever) or `stop()` is true."""
    start = time.monotonic()
    due = start
    while not stop():
        for recorder in recorders:
            recorder.look(time.time())
        due = max(due + period, time.monotonic())
        if seconds is not None and due > start + seconds:
            break
        wait(max(0.0, due - time.monotonic()))
    for recorder in recorders:
        recorder.finish()
