"""How long one metrics page takes: the scanner for mapped names against prometheus-client's full parser.

Run: python bench/bench_metrics_scan.py [PAGE]    (default: the recorded page of a loaded vLLM)
Prints one JSON line; times are medians in milliseconds over interleaved rounds in one process.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from infradoc.sources.mapping import PageMapper
from infradoc.sources.scan import PageScanner

DEFAULT_PAGE = Path(__file__).resolve().parents[1] / "tests/data/recordings/samples/vllm_metrics_loaded.txt"
ROUNDS = 60


def timed(call: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1000


def main() -> None:
    """Measure and print."""
    page = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_PAGE
    body = page.read_bytes()
    text = body.decode()
    families = list(text_string_to_metric_families(text))
    names = {sample.name for family in families for sample in family.samples}
    everything = PageScanner(names, lambda name, labels: (name, tuple(sorted(labels.items()))))
    mapper = PageMapper()
    first_look = timed(lambda: mapper.page(body, 0.0))
    everything.scan(body)
    ways: dict[str, Callable[[], object]] = {
        "full_parser_ms": lambda: list(text_string_to_metric_families(text)),
        "scan_all_names_ms": lambda: everything.scan(body),
        "scan_and_map_ms": lambda: mapper.page(body, 1.0),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            times[name].append(timed(way))
    result: dict[str, object] = {name: round(statistics.median(values), 3) for name, values in times.items()}
    result |= {
        "first_look_ms": round(first_look, 3),
        "page": page.name,
        "bytes": len(body),
        "samples": sum(len(family.samples) for family in families),
        "mapped": len(mapper.page(body, 2.0).samples),
        "rounds": ROUNDS,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
