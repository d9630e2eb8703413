"""What is shown as CSV. Cells that a spreadsheet would compute are made text: names of models come from others."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infradoc.errors import InfradocError
from infradoc.fleet import history
from infradoc.fleet.model import Mark
from infradoc.tui.paint import one_line
from infradoc.tui.panels.block_holders import clean_pieces, clean_runs
from infradoc.tui.table import Row
from infradoc_rules.model import SignalFrame

_LINES = (
    ("generated_tokens_per_second", "rate", "llm_generation_tokens_total"),
    ("prompt_tokens_per_second", "rate", "llm_prompt_tokens_total"),
    ("requests_waiting", "gauge", "llm_requests_waiting"),
    ("requests_running", "gauge", "llm_requests_running"),
    ("kv_usage_ratio", "gauge", "llm_kv_cache_usage_ratio"),
)
_HISTOGRAMS = (("ttft", "llm_time_to_first_token_seconds"), ("itl", "llm_inter_token_latency_seconds"))


def table(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV text."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in rows:
        writer.writerow([safe(value) for value in row])
    return out.getvalue()


def safe(value: object) -> str:
    """One cell; text that begins like a formula gets an apostrophe."""
    if value is None:
        return ""
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.6g}"
    text = one_line(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) and not isinstance(value, int) else text


def fleet_csv(rows: Sequence[Row]) -> str:
    """The table of targets, with every figure."""
    names = sorted({name for row in rows for name in row.state.vitals})
    head = ["target", "system", "version", "status", "up", *names, "findings", "error"]
    body = [
        [
            row.state.name,
            row.state.system,
            row.state.version,
            row.state.status,
            row.state.up,
            *(row.state.vitals.get(name) for name in names),
            " ".join(str(one["id"]) for one in row.state.findings),
            row.state.error,
        ]
        for row in rows
    ]
    return table([head, *body])


def series_csv(frame: SignalFrame, marks: Sequence[Mark]) -> str:
    """One row a look at the server: throughput, queue, KV use, percentiles of the minute before, and marks at it."""
    times = looks(frame)
    if not len(times):
        return table([["time"]])
    begin, end = float(times[0]), float(times[-1]) + 1e-6
    columns: dict[str, history.Floats] = {}
    for name, kind, signal in _LINES:
        found = history.rate(frame, signal, begin, end) if kind == "rate" else history.gauge(frame, signal, begin, end)
        columns[name] = at_times(times, *found)
    for short, signal in _HISTOGRAMS:
        values, samples = history.rolling(frame, signal, times)
        columns |= {f"{short}_p{q * 100:.0f}_seconds": line for q, line in values.items()}
        columns[f"{short}_samples"] = samples if len(samples) else np.full(len(times), np.nan)
    told = [
        " ".join(f"{m.kind}:{m.key}" for m in marks if low < m.time <= t)
        for low, t in zip([-np.inf, *times], times, strict=False)
    ]
    body = [[f"{t:.3f}", *(float(line[i]) for line in columns.values()), told[i]] for i, t in enumerate(times)]
    return table([["time", *columns, "marks"], *body])


def looks(frame: SignalFrame) -> history.Floats:
    """When the server's page was asked for; of a target without one, when anything was."""
    asked = frame.select("target_up")
    page = [one for one in asked if one.labels.get("source") == "metrics"]
    return np.unique(np.concatenate([np.asarray(one.times) for one in page or asked] or [np.empty(0)]))


def blocks_csv(told: Mapping[str, Any]) -> str:
    """The map of KV blocks as the engine told it last, one row for blocks in a row that are alike; "" without a map.

    owner_step: 1 where owner and age are those of each block, n where the engine told them for n blocks at once.
    """
    pieces = clean_pieces(told)
    step = told.get("owners_step", 1)
    body: list[list[object]] = [[p.start, p.blocks, p.state, p.owner, p.age, step] for p in pieces]
    if not pieces:  # an engine that tells states alone
        start = 0
        for state, length in clean_runs(told.get("runs")):
            body.append([start, length, state, None, None, None])
            start += length
    return table([["first_block", "blocks", "state", "owner", "age_seconds", "owner_step"], *body]) if body else ""


def at_times(wanted: history.Floats, times: history.Floats, values: history.Floats) -> history.Floats:
    """Values at exactly the wanted times; NaN where there is none."""
    made = np.full(len(wanted), np.nan)
    if len(times):
        places = np.minimum(np.searchsorted(times, wanted), len(times) - 1)
        same = times[places] == wanted
        made[same] = values[places[same]]
    return made


def finding_csv(finding: Mapping[str, Any]) -> str:
    """The evidence of a finding, and its actions."""
    head = ["kind", "text", "signal", "source", "value", "unit", "weight"]
    rows: list[list[object]] = [
        ["evidence", one["text"], one["signal"], one["source"], one["value"], one["unit"], one["weight"]]
        for one in finding["evidence"]
    ]
    rows += [
        ["action", one["flag"] or one["knob"], one["knob"], one["why"], one["to"], "", ""] for one in finding["actions"]
    ]
    return table([head, *rows])


def write(folder: Path, name: str, svg: str, text: str, blocks: str = "") -> list[Path]:
    """Write the files beside each other; never over an older one. Raises InfradocError when it cannot.

    `blocks`: a second table, not written when empty.
    """
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", f"infradoc-{name}-{time.strftime('%Y%m%d-%H%M%S')}")[:120]
    place = 0
    while any(
        (folder / f"{stem}{'-' * bool(place)}{place or ''}.{end}").exists() for end in ("svg", "csv", "blocks.csv")
    ):
        place += 1
    stem += f"-{place}" if place else ""
    paths = [folder / f"{stem}.svg", folder / f"{stem}.csv"]
    paths += [folder / f"{stem}.blocks.csv"] if blocks else []
    try:
        for path, content in zip(paths, (svg, text, blocks), strict=False):
            path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise InfradocError(
            f"{paths[0].parent} cannot be written: {error.strerror}.", "Give another --export-dir."
        ) from error
    return paths


__all__ = ["blocks_csv", "finding_csv", "fleet_csv", "series_csv", "write"]
