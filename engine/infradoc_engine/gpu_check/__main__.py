"""python -m infradoc_engine.gpu_check [--steps a,b] [--out FILE] [--quick] [--dry-run] [--list]"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infradoc_engine.gpu_check.look import Look
    from infradoc_engine.gpu_check.record import Record

NO_DEVICE = 3
# In the order of a run: name, seconds it may take, what it does. Together under seven minutes.
STEPS: dict[str, tuple[int, str]] = {
    "environment": (5, "versions, device, driver, clocks"),
    "copy": (10, "bandwidth of copies of several sizes"),
    "nvml": (10, "one snapshot of every NVML call that the agent uses, idle and busy"),
    "correctness": (95, "every kernel against float64 on random shapes, and an index beyond 2^31"),
    "model": (100, "model steps with random weights, with and without CUDA graphs"),
    "refusal": (20, "a start beside a process that holds nearly all memory"),
    "decode": (60, "decode attention over batches and contexts"),
    "prefill": (35, "prefill attention over chunks and contexts"),
    "small": (15, "norm, rope, KV write, gate, top-p"),
    "allocator": (5, "torch's memory statistics"),
    "tune": (55, "a few settings of the decode kernel on a few shapes"),
}
TOTAL_SECONDS = 405


def main(arguments: Sequence[str] | None = None) -> int:
    """0: all steps ended without an error or a failed check; 1: one did not; 2: usage; 3: no CUDA device, no torch."""
    options = _options(arguments)
    if options.list:
        for name, (seconds, text) in STEPS.items():
            print(f"{name:12} {seconds:4} s  {text}")
        return 0
    unknown = [name for name in options.steps if name not in STEPS]
    if unknown:
        print(f"gpu_check: there is no step {', '.join(unknown)}; the steps are {', '.join(STEPS)}", file=sys.stderr)
        return 2
    if options.out.exists() and not options.out.is_file():  # the rename that writes it would replace a device
        print(f"gpu_check: --out {options.out} is no regular file; give another name", file=sys.stderr)
        return 2
    if options.dry_run:
        os.environ["TRITON_INTERPRET"] = "1"  # read when triton is first imported
    try:
        import torch
    except ImportError:
        print("gpu_check: torch is not installed for this Python; it and triton are needed", file=sys.stderr)
        return NO_DEVICE
    if not options.dry_run and not torch.cuda.is_available():
        print("gpu_check: no CUDA device here; --dry-run plays the steps on the CPU with tiny shapes", file=sys.stderr)
        return NO_DEVICE
    try:
        return _run(options)
    except OSError as error:
        print(f"gpu_check: cannot write {options.out}: {error.strerror}; give --out another file", file=sys.stderr)
        return 2


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m infradoc_engine.gpu_check", description="Checks a GPU host.")
    parser.add_argument(
        "--steps", type=lambda text: text.split(","), default=list(STEPS), metavar="A,B", help="only these"
    )
    parser.add_argument("--out", type=Path, default=Path("gpu-check.json"), help="default: gpu-check.json")
    parser.add_argument("--quick", action="store_true", help="fewer shapes")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, tiny shapes, kernels interpreted")
    parser.add_argument("--seconds", type=_seconds, default=TOTAL_SECONDS, help="for all steps together")
    parser.add_argument("--list", action="store_true", help="name the steps")
    return parser.parse_args(arguments)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < math.inf:  # NaN is neither
        raise ValueError
    return seconds


def _run(options: argparse.Namespace) -> int:
    import torch

    from infradoc_engine.gpu_check.look import Look
    from infradoc_engine.gpu_check.record import Record

    device = torch.device("cpu") if options.dry_run else torch.device("cuda", torch.cuda.current_device())
    look = Look(device, quick=options.quick, dry=options.dry_run)
    record = Record(options.out, options.steps, options.quick, options.dry_run)
    end = time.monotonic() + options.seconds
    fine = True
    for name in (step for step in STEPS if step in options.steps):
        look.deadline = min(time.monotonic() + STEPS[name][0], end)
        fine &= _step(name, look, record)
    print(f"written to {options.out}")
    return 0 if fine else 1


def _step(name: str, look: Look, record: Record) -> bool:
    """Runs one step; a fault of it is recorded and does not reach the next one."""
    import torch

    entry, start = record.open(name), time.monotonic()
    record.save()
    try:
        rows = importlib.import_module(f"infradoc_engine.gpu_check.{name}_step").run(look)
        with torch.inference_mode():
            for row in rows:
                record.add(name, row)
                if look.left() <= 0:
                    entry["cut"] = "its time was up; later rows are missing"
                    rows.close()
                    break
        entry["finished"] = "cut" not in entry
    except Exception as error:  # the point of a check run is to see what fails, and to go on
        first_line = (str(error).splitlines() or [""])[0]
        entry["error"] = f"{type(error).__name__}: {first_line}"
    entry["seconds"] = round(time.monotonic() - start, 3)
    record.save()
    bad = [row for row in entry["rows"] if row.get("ok") is False]
    print(_line(name, entry, len(bad)), flush=True)
    return "error" not in entry and not bad


def _line(name: str, entry: dict[str, Any], failed: int) -> str:
    said = f"{name:12} {entry['seconds']:7.1f} s  {len(entry['rows'])} rows"
    for text in (f"{failed} FAILED" if failed else "", entry.get("cut", ""), entry.get("error", "")):
        said += f"; {text}" if text else ""
    return said


if __name__ == "__main__":
    sys.exit(main())
