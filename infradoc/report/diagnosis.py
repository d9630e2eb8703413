"""From a target to its report: watch it live, or replay its recording, and build report v1."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from infradoc.errors import InfradocError
from infradoc.monitor.attach import Target
from infradoc.report.build import Observation, build_report, unknown_report
from infradoc.report.model import Report
from infradoc.report.words import words
from infradoc.sources.recording import Recording
from infradoc.sources.rows import row_time
from infradoc_rules.catalog import Catalog

if TYPE_CHECKING:
    from infradoc.monitor.findings import FindingLog
    from infradoc.report.plots import Plot
    from infradoc.signals.store import Store


def diagnose_live(
    target: Target,
    catalog: Catalog,
    seconds: float,
    lang: str = "en",
    progress: Callable[[int], None] | None = None,
    plots: list[Plot] | None = None,
) -> Report:
    """Watch a live target for `seconds` and report; with `plots`, add what a page draws. Closes the target."""
    from infradoc.monitor.live import watch  # not above: a recording needs neither httpx nor psutil
    from infradoc.monitor.loop import Monitor

    monitor = Monitor(target, catalog, lang)
    try:
        taken = watch(monitor, seconds, progress)
    finally:
        monitor.close()
    store, last = target.store, monitor.last
    if last is None or (target.url and "metrics" not in store.sources):
        return unknown_report(target.name, [store.errors.get("metrics", words(lang)["server_down"])], store.system)
    blind = [f"{source.name}: {why}" for source in target.sources if (why := why_blind(source))]
    unparsed = sum(int(getattr(source, "unparsed_lines", 0)) for source in target.sources)
    given = (("log", target.config.log or target.config.log_command), ("client", target.config.client))
    named = frozenset(kind for kind, what in (*given, ("settings", target.config.launch)) if what)
    seen = Observation(target.name, store, monitor.log, last.frame, max(taken, store.period), blind, unparsed, named)
    if plots is not None:
        _draw(plots, monitor.log, store, last.frame.now)
    return build_report(seen, lang)


def _draw(plots: list[Plot], log: FindingLog, store: Store, now: float) -> None:
    from infradoc.report.plots import live_plots

    plots += live_plots(log, store, now)


def why_blind(source: object) -> str | None:
    """Why a bound source could not look; None when it could, or when it says nothing about it."""
    explain = getattr(source, "why_not", None)
    return str(text) if explain is not None and (text := explain()) else None


def outside(recording: Recording, path: Path) -> InfradocError:
    """Nothing lies in the time asked for: from when to when the recording runs."""
    times = [time for row in recording.rows("scrapes.jsonl.gz") if (time := row_time(row)) is not None]
    if not times:
        return InfradocError(f"{path} holds no page in the time asked for.", "Leave --since and --until out.")
    first, last = (datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds") for time in (min(times), max(times)))
    return InfradocError(f"{path} holds no page in the time asked for.", f"It runs from {first} to {last}.")


def diagnose_recording(
    path: Path,
    catalog: Catalog,
    lang: str = "en",
    since: float | None = None,
    until: float | None = None,
    plots: list[Plot] | None = None,
) -> Report:
    """Replay a recording and report; `plots` as for a live target.

    Raises RecordingError when it is none, InfradocError for a time outside it.
    """
    from infradoc.monitor.replay import Replay

    replay = Replay(path, catalog, lang)
    replay.run(since, until)
    name = str(path)
    say = words(lang)
    if replay.last is None and (since is not None or until is not None):
        raise outside(replay.recording, path)
    if replay.last is None:
        return unknown_report(name, [say["no_metrics"]])
    recording = replay.recording
    spots = [] if recording.has_series else [say["no_metrics"]]
    unparsed = recording.unparsed_lines + recording.bad_lines
    seconds = max(replay.seconds, replay.store.period)
    log, frame = replay.evaluator.log, replay.last.frame
    if plots is not None:
        _draw(plots, log, replay.store, frame.now)
    return build_report(Observation(name, replay.store, log, frame, seconds, spots, unparsed), lang)
