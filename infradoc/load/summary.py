"""The result of a load run as data (`infradoc.bench/v1`) and as a table."""

from __future__ import annotations

import platform
from typing import Any

from infradoc import __version__
from infradoc.load.run import LoadResult
from infradoc.load.stats import Distribution, shown
from infradoc.load.window import Window, cut_window

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
        "unfinished": result.unfinished,
        "classes": {name: numbers(cut_window(result.records, begin, end, name)) for name in names},
        "total": numbers(cut_window(result.records, begin, end)),
    }


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
    if summary["unfinished"]:
        lines.append(f"{summary['unfinished']} requests were given up when the run was stopped; they are not counted.")
    return "\n".join(lines)


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
    parts = [f"{data['finished']} requests ({data['requests_per_second']:.2f}/s)"]
    if data["tokens_per_second"]:
        parts.append(f"{data['tokens_per_second']:.1f} tokens/s")
    if data["documents_per_second"]:
        parts.append(f"{data['documents_per_second']:.2f} documents/s")
    errors = ", ".join(f"{count} {kind}" for kind, count in sorted(data["errors"].items()))
    return ", ".join([*parts, f"errors: {errors or 'none'}"])
