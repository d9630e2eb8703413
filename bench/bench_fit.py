"""How far `infradoc fit` is off: its account beside start-up lines of vLLM that no constant was set on.

python -P bench/bench_fit.py [--data tests/data/fit/vllm.yaml] [--write] [--show]
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from infradoc_rules.sizing.account import ERRORS, Account, account
from infradoc_rules.sizing.gpus import gpu_named
from infradoc_rules.sizing.known import known_model
from infradoc_rules.sizing.model import Model
from infradoc_rules.sizing.setting import Setting
from infradoc_rules.units import GIB

DATA = Path("tests/data/fit/vllm.yaml")
RESULTS = Path(__file__).parent / "results" / "fit.json"
_FLAGS = ("max_model_len", "dtype", "quantization", "kv_dtype", "fraction", "max_num_seqs", "max_num_batched_tokens")


def start_of(row: Mapping[str, Any]) -> tuple[Model, Setting]:
    """Model and launch of a row. Raises ValueError naming what the tables lack."""
    model, gpu = known_model(row["model"]), gpu_named(row["gpu"])
    if model is None or gpu is None:
        raise ValueError(f"{row['model']} or {row['gpu']} is in no table")
    return model, Setting(
        gpu=replace(gpu, memory_bytes=int(row["total"] * GIB)),
        tensor_parallel=row.get("tp", 1),
        pipeline_parallel=row.get("pp", 1),
        eager=row.get("eager", False),
        version=tuple(int(part) for part in re.findall(r"\d+", row["version"])),
        **{name: row[name] for name in _FLAGS if name in row},
    )


def errors_of(printed: Mapping[str, float], made: Account) -> Iterator[tuple[str, float]]:
    """(what, error): shares of the printed value for parts, GiB for the engine's and the KV cache's bytes."""
    for name in ("weights", "activation", "graphs"):
        if name in printed:
            yield name, getattr(made, name) / GIB / printed[name] - 1
    if "engine" in printed:
        yield "engine_gib", made.engine / GIB - printed["engine"]
    if "kv" in printed:
        yield "kv_gib", made.kv / GIB - printed["kv"]
        yield "kv_of_budget", (made.kv / GIB - printed["kv"]) / (made.budget / GIB)
    if "tokens" in printed:
        yield "tokens", made.tokens / printed["tokens"] - 1


def distribution(errors: Iterable[float]) -> dict[str, float]:
    """Count, median, the 10th and 90th percentile, the largest in absolute value and the mean absolute error."""
    found: list[float] = sorted(errors)
    cuts = statistics.quantiles(found, n=10, method="inclusive") if len(found) > 1 else found * 9
    return {
        "starts": len(found),
        "median": round(statistics.median(found), 4),
        "p10": round(cuts[0], 4),
        "p90": round(cuts[8], 4),
        "worst": round(found[-1] if found[-1] > -found[0] else found[0], 4),
        "mean_absolute": round(statistics.fmean(map(abs, found)), 4),
    }


def compared(rows: Iterable[Mapping[str, Any]], show: bool = False) -> dict[str, Any]:
    """The distributions over the rows that no constant was set on, and how many verdicts lie within the stated span."""
    errors: dict[str, list[float]] = {}
    within = spans = 0
    for row in rows:
        model, setting = start_of(row)
        made = account(model, setting)
        found = dict(errors_of(row["printed"], made))
        if show:
            print(
                row["model"], setting.gpu.name, row["version"], {name: round(value, 3) for name, value in found.items()}
            )
        if row.get("set"):
            continue
        for name, error in found.items():
            errors.setdefault(name, []).append(error)
        if "kv" in row["printed"]:
            spans += 1
            within += made.kv_low <= row["printed"]["kv"] * GIB <= made.kv_high
    return {
        "errors": {name: distribution(found) for name, found in sorted(errors.items())},
        "kv_within_stated_span": [within, spans],
    }


def main() -> int:
    """Print the distributions; with --write keep them beside the other results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--show", action="store_true", help="each start's errors")
    args = parser.parse_args()
    rows = yaml.safe_load(args.data.read_text("utf-8"))["starts"]
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "starts": len(rows),
        "held_out": sum(not row.get("set") for row in rows),
        "stated": ERRORS,
    } | compared(rows, args.show)
    print(json.dumps(result, indent=1))
    if args.write:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
