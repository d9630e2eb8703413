"""Turns the file of a run into the table of bench/results: `python -m infradoc_engine.gpu_check.report FILE > gpu.md`.

Without a file every figure reads "not yet measured". A figure that a run does not have reads so too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Rows = dict[str, list[dict[str, Any]]]
NOT_MEASURED = "not yet measured"
Figure = tuple[str, str, Callable[[Rows], str | None]]  # what, the aim, how to read it from the rows


def table(data: dict[str, Any] | None) -> str:
    """The whole page, in Markdown."""
    rows: Rows = {} if data is None else {name: step["rows"] for name, step in data["steps"].items()}
    lines = ["# GPU measurements", "", *_origin(data, rows), "", "| figure | aim | measured |", "|---|---|---|"]
    lines += [f"| {what} | {aim} | {read(rows) or NOT_MEASURED} |" for what, aim, read in FIGURES]
    return "\n".join([*lines, "", *_faults(data)]).rstrip() + "\n"


def _origin(data: dict[str, Any] | None, rows: Rows) -> list[str]:
    how = "Made by `make gpu-check` and `python -m infradoc_engine.gpu_check.report gpu-check.json`."
    if data is None:
        return [how + " No run on a GPU has been made."]
    if data.get("dry_run"):
        raise ValueError("this file is of a dry run on the CPU: its times say nothing about a GPU")
    about = (rows.get("environment") or [{}])[0]
    parts = [
        f"{key} {about[key]}" for key in ("device", "driver", "cuda", "torch", "triton", "python") if about.get(key)
    ]
    return [how, f"Run of {data['started']}: {', '.join(parts) or 'environment not recorded'}."]


def _faults(data: dict[str, Any] | None) -> list[str]:
    """Steps that failed or were cut, and checks that did not hold."""
    lines = []
    for name, step in (data or {"steps": {}})["steps"].items():
        for text in (step.get("error"), step.get("cut")):
            if text:
                lines.append(f"- step `{name}`: {text}")
        bad = [row for row in step["rows"] if row.get("ok") is False]
        lines += [f"- step `{name}` failed: `{json.dumps(row)}`" for row in bad]
    return ["What did not go well:", "", *lines] if lines else []


def _find(rows: Rows, step: str, /, **wanted: Any) -> dict[str, Any] | None:
    """The first row with these values."""
    return next(
        (row for row in rows.get(step, []) if all(row.get(key) == value for key, value in wanted.items())), None
    )


def _copy(rows: Rows) -> str | None:
    speeds = [row["gigabytes_per_second"] for row in rows.get("copy", []) if row.get("bytes", 0) >= 1 << 30]
    return f"{max(speeds):,.0f} GB/s" if speeds else None


def _checks(rows: Rows) -> str | None:
    checks = [row for row in rows.get("correctness", []) if "ok" in row]
    return f"{sum(row['ok'] for row in checks)} of {len(checks)} hold" if checks else None


def _decode(kv_heads: int, batch: int, context: int) -> Callable[[Rows], str | None]:
    def read(rows: Rows) -> str | None:
        row = _find(rows, "decode", kv_heads=kv_heads, batch=batch, context=context, block_size=16)
        return None if row is None else _speed(row, "gigabytes_per_second", "share_of_copy")

    return read


def _speed(row: dict[str, Any], speed: str, share: str) -> str:
    of_copy = f", {row[share]:.0%} of the copy" if row.get(share) is not None else ""
    return f"{row[speed]:,.0f} GB/s{of_copy}"


def _prefill(kv_heads: int, queries: int) -> Callable[[Rows], str | None]:
    def read(rows: Rows) -> str | None:
        row = _find(rows, "prefill", kv_heads=kv_heads, queries=queries, requests=1, block_size=16, head_dim=128)
        return None if row is None else f"{row['teraflops']:,.0f} TFLOP/s"

    return read


def _step(model: str, batch: int, mode: str) -> Callable[[Rows], str | None]:
    def read(rows: Rows) -> str | None:
        row = _find(rows, "model", model=model, what="decode", batch=batch, mode=mode)
        if row is None:
            return None
        share = row.get("weights_share_of_copy")
        weights = f", weights at {share:.0%} of the copy" if batch == 1 and share is not None else ""
        return f"{row['tokens_per_second']:,.0f} tokens/s ({row['step_ms']:.2f} ms){weights}"

    return read


def _small(kernel: str) -> Callable[[Rows], str | None]:
    def read(rows: Rows) -> str | None:
        row = _find(rows, "small", kernel=kernel, rows=8192)
        return None if row is None else _speed(row, "gigabytes_per_second", "share_of_copy")

    return read


SMALL, LARGE = "SmolLM2-135M-shaped", "Llama-7B-shaped"
FIGURES: list[Figure] = [
    ("copy on the device, read and written bytes", "", _copy),
    ("kernels against float64", "all", _checks),
    *(
        (f"decode attention, {name}, batch {batch}, context {context}", aim, _decode(kv_heads, batch, context))
        for name, kv_heads in (("8 KV heads", 8), ("32 KV heads", 32))
        for batch, context, aim in (
            (32, 8192, "85 % of the copy"),
            (128, 8192, "85 % of the copy"),
            (4, 8192, "60 % of the copy"),
            (1, 8192, ""),
        )
    ),
    *(
        (f"prefill attention, {name}, {queries} tokens", "", _prefill(kv_heads, queries))
        for name, kv_heads in (("8 KV heads", 8), ("32 KV heads", 32))
        for queries in (2048, 8192)
    ),
    *(
        (f"{kernel}, 8192 rows", "", _small(kernel))
        for kernel in ("rms_norm", "silu_and_mul", "rope", "kv_cache_write")
    ),
    *(
        (
            f"{model}, decode, batch {batch}, {text}",
            aim if batch == 1 and mode == "graph" else "",
            _step(model, batch, mode),
        )
        for model, aim in ((LARGE, "weights at 75 % of the copy"), (SMALL, ""))
        for batch in (1, 8, 32, 128)
        for mode, text in (("graph", "CUDA graph"), ("eager", "eager"))
    ),
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the page; 2 with one sentence for a file that cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m infradoc_engine.gpu_check.report", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", help="what a run wrote; without it nothing is measured")
    path = parser.parse_args(arguments).file
    try:
        data = None if path is None else json.loads(path.read_text())
        sys.stdout.write(table(data))
    except (OSError, ValueError, KeyError) as error:
        print(f"report: {path} cannot be used: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
