"""The result of a load run as data (`infradoc.bench/v1`) and as a table."""

from __future__ import annotations

import platform
import statistics
from typing import Any

from infradoc import __version__
from infradoc.errors import visible
from infradoc.load.record import said
from infradoc.load.run import LoadResult
from infradoc.load.stats import Distribution, shown
from infradoc.load.window import Window, cut_window
from infradoc.plurals import counted

SCHEMA = "infradoc.bench/v1"
LATENCIES = (("TTFT", "ttft"), ("ITL", "itl"), ("end-to-end", "e2e"))


def summarise(result: LoadResult) -> dict[str, Any]:
    """The run as JSON data. A percentile is null where it has too few samples: P99 needs 100, P90 10."""
    begin, end = result.measured_from, result.measured_to
    names = [spec.name for spec in result.spec.classes]
    return {
        "schema": SCHEMA,
        "versions": {"infradoc": __version__, "python": platform.python_version(), "platform": platform.platform()},
        "url": result.url,
        "model": result.model,
        "seed": result.spec.seed,
        "spec": result.spec.as_json(),
        "measured": {"from": round(begin, 3), "to": round(end, 3), "seconds": round(end - begin, 3)},
        "begun": len(result.records) + result.unfinished,
        "unfinished": result.unfinished,
        "classes": {name: numbers(cut_window(result.records, begin, end, name)) for name in names},
        "total": numbers(cut_window(result.records, begin, end)),
        "error_examples": error_examples(result),
        "late_seconds": late_seconds(result),
    }


def error_examples(result: LoadResult) -> dict[str, str]:
    """What the server (or the client) said of the first failure of each kind."""
    found: dict[str, str] = {}
    for record in result.records:
        if record.error_kind is not None:
            found.setdefault(record.error_kind, said(record))
    return found


def late_seconds(result: LoadResult) -> float | None:
    """Median seconds of the answers that came after the measured time, where none came within it."""
    answered = [record for record in result.records if record.ok and record.e2e is not None]
    if not answered or any(record.end < result.measured_to for record in result.records):
        return None
    return round(statistics.median(record.e2e or 0.0 for record in answered), 3)


def numbers(window: Window) -> dict[str, Any]:
    """One window as JSON data; seconds."""
    return {
        "finished": window.finished,
        "errors": window.errors,
        "tokens_per_second": round(window.tokens_per_second, 3),
        "documents_per_second": round(window.documents_per_second, 3),
        "requests_per_second": round(window.finished / window.seconds, 3) if window.seconds > 0 else 0.0,
        "mean_concurrency": round(window.concurrency, 3),
        **{f"{key}_seconds": Distribution.of(getattr(window, key)).as_json() for _, key in LATENCIES},
    }


def table(summary: dict[str, Any]) -> str:
    """The summary as plain text."""
    measured = summary["measured"]["seconds"]
    lines = [f"{summary['url']}  model {summary['model']}  seed {summary['seed']}  measured {measured:.1f} s"]
    lines.append(
        f"{'class':<12} {'latency':<11} {'n':>6} {'mean':>9} {'P50':>9} {'P90':>9} {'P99':>9} {'max':>9}  seconds"
    )
    for name, data in summary["classes"].items():
        lines += latency_lines(name, data)
    for name, data in [*summary["classes"].items(), ("total", summary["total"])]:
        lines.append(f"{name:<12} {rates(data)}")
    for kind, text in summary["error_examples"].items():
        lines.append(f"first {kind}: {visible(text)}")
    if not summary["total"]["finished"] and summary["begun"]:
        lines.append(none_finished(summary))
    if summary["unfinished"]:
        lines.append(f"{counted(summary['unfinished'], 'request')} given up when the run was stopped; not counted.")
    return "\n".join(lines)


def none_finished(summary: dict[str, Any]) -> str:
    """Why there are no numbers although requests were sent."""
    late, measured = summary["late_seconds"], summary["measured"]["seconds"]
    took = "" if late is None else f"; answers took {late:.1f} s (median)"
    return f"{counted(summary['begun'], 'request')} begun, none finished within the {measured:.1f} s measured{took}."


def latency_lines(name: str, data: dict[str, Any]) -> list[str]:
    """The latency rows of one class; a latency without samples has none."""
    lines = []
    for title, key in LATENCIES:
        values = data[f"{key}_seconds"]
        n = values["n"]
        if n:
            cells = [shown(values["mean"], n, 0.5), *(shown(values[f"p{q}"], n, q / 100) for q in (50, 90, 99))]
            row = " ".join(f"{cell:>9}" for cell in [*cells, shown(values["max"], n, 0.5)])
            lines.append(f"{name:<12} {title:<11} {n:>6} {row}")
    return lines


def rates(data: dict[str, Any]) -> str:
    """Throughput and errors of one class in one line."""
    parts = [f"{counted(data['finished'], 'request')} ({data['requests_per_second']:.2f}/s)"]
    if data["tokens_per_second"]:
        parts.append(f"{data['tokens_per_second']:.1f} tokens/s")
    if data["documents_per_second"]:
        parts.append(f"{data['documents_per_second']:.2f} documents/s")
    errors = ", ".join(f"{count} {kind}" for kind, count in sorted(data["errors"].items()))
    return ", ".join([*parts, f"errors: {errors or 'none'}"])
