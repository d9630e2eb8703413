"""What the kernel benches share: timing with CUDA events, and rows that name the device, the versions and the date."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Case:
    """One shape. `run` launches what is measured; `bytes_moved` is what it must read and write at least."""

    shape: dict[str, Any]
    dtype: str
    backend: str  # "triton" or "reference"
    run: Callable[[], object]
    bytes_moved: int


def measure(run: Callable[[], object], repeats: int = 50, warm_up: int = 5) -> dict[str, float]:
    """Milliseconds of one run on the device: p20, p50, p80. The second-level cache is cleared before each."""
    for _ in range(warm_up):
        run()
    flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    event = torch.cuda.Event  # torch declares it without types
    pairs: list[Any] = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(repeats)]  # type: ignore[no-untyped-call]
    for start, end in pairs:
        flush.zero_()
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    cuts = statistics.quantiles((start.elapsed_time(end) for start, end in pairs), n=10)
    return {"p20_ms": cuts[1], "p50_ms": cuts[4], "p80_ms": cuts[7]}


def bench(kernel: str, cases: Callable[[], Iterable[Case]]) -> int:
    """Runs all cases and writes JSON rows; 2 with one sentence where there is no GPU."""
    parser = argparse.ArgumentParser(description=f"Times {kernel} on a GPU, beside its PyTorch reference.")
    parser.add_argument("--out", type=Path, default=Path(f"bench/results/{kernel}.json"))
    out = parser.parse_args().out
    if not torch.cuda.is_available():
        print(f"bench_{kernel}: there is no CUDA GPU here, so nothing was measured", file=sys.stderr)
        return 2
    about = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": import_module("triton").__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }
    rows = []
    for case in cases():
        times = measure(case.run)
        row = {"kernel": kernel, "backend": case.backend, "dtype": case.dtype, **case.shape, **times}
        row["gigabytes_per_second"] = case.bytes_moved / times["p50_ms"] / 1e6
        rows.append(row | about)
        print(json.dumps(rows[-1]), flush=True)
        out.write_text(json.dumps(rows, indent=1) + "\n")
    return 0
