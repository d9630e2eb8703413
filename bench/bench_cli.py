"""How long a person waits for the command line, beside a bare interpreter start in the same run.

usage: bench_cli.py [--runs 20] [--out bench/results/cli.json]

Each round runs every command once, so that a busy moment of the box hits all of them; figures are medians in seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INFRADOC = str(Path(sys.executable).parent / "infradoc")
COMMANDS = {
    "bare interpreter": [sys.executable, "-P", "-c", "pass"],
    "infradoc --help": [INFRADOC, "--help"],
    "infradoc diagnose FOLDER (106 scrapes of vLLM)": [INFRADOC, "diagnose", "tests/data/recordings/vllm-05"],
    "infradoc playbook ID": [INFRADOC, "playbook", "kv-thrashing-preemption"],
}


def seconds(command: list[str]) -> float:
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120)
    if done.returncode not in (0, 10, 20, 30):
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.decode()[-300:]}")
    return time.perf_counter() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results/cli.json")
    args = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(args.runs):
        for name, command in COMMANDS.items():
            times[name].append(seconds(command))
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "runs": args.runs,
        "median_seconds": {name: round(statistics.median(values), 4) for name, values in times.items()},
    }
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
