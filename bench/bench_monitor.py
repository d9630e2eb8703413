"""What watching costs: CPU seconds and memory of infradoc while it looks at a loaded engine once a second.

usage: bench_monitor.py [--seconds 90] [--beside TREE] [--out bench/results/monitor.json]

The bundled engine runs under a light load, `infradoc diagnose --window` watches it with the whole catalog; the
watcher's CPU time between its 10th second and its end is read from the kernel, so start-up and the final report do not
count. A difference in tokens a second of 1 % would need hundreds of paired runs: CPU seconds say it directly.
`--beside` names the source tree of another version, which watches the same engine at the same time: what else runs on
the machine weighs on both alike.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
INFRADOC = [sys.executable, "-P", "-m", "infradoc"]
SKIP_SECONDS = 10.0
READY = re.compile(r"ready on (http://\S+)")
LOAD = "chat:closed=4,kind=chat,prompt_tokens=24-64,max_tokens=16-48,ignore_eos=true"


def start_engine(folder: str) -> tuple[subprocess.Popen[str], str]:
    env = os.environ | {"INFRADOC_RUNTIME_DIR": folder}
    command = [*INFRADOC, "serve", "--port", "0", "--omp-num-threads", "1"]
    child = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    for line in child.stderr:
        if found := READY.search(line):
            return child, found.group(1)
    raise SystemExit("the engine did not start; is the model fetched (make setup)?")


def watch(url: str, seconds: float, folder: str, trees: list[Path]) -> list[dict[str, float]]:
    """Cores and memory of one watcher per source tree, all at the same time."""
    children = [start_watcher(url, seconds, folder, tree) for tree in trees]
    processes = [psutil.Process(child.pid) for child in children]
    begin = time.monotonic()
    time.sleep(SKIP_SECONDS)
    first, since = [cpu(process) for process in processes], time.monotonic()
    last, highest, taken = first, [0] * len(processes), 0.0
    while time.monotonic() - begin < seconds - 2:
        time.sleep(1.0)
        last, taken = [cpu(process) for process in processes], time.monotonic() - since
        highest = [max(most, process.memory_info().rss) for most, process in zip(highest, processes, strict=True)]
    for child in children:
        child.wait()
    return [
        {"cores": (end - start) / taken, "seconds": taken, "rss_mib": most / 2**20}
        for start, end, most in zip(first, last, highest, strict=True)
    ]


def start_watcher(url: str, seconds: float, folder: str, tree: Path) -> subprocess.Popen[bytes]:
    """`infradoc diagnose` of the code in `tree`."""
    path = os.pathsep.join(str(tree / part) for part in ("", "rules", "playbooks"))
    env = os.environ | {"INFRADOC_RUNTIME_DIR": folder, "PYTHONPATH": path}
    command = [*INFRADOC, "diagnose", url, "--window", f"{seconds:.0f}s", "--format", "json"]
    return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)


def cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def figures(measured: dict[str, float]) -> dict[str, float]:
    return {"cpu_share_of_one_core": round(measured["cores"], 5), "rss_mib": round(measured["rss_mib"], 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results/monitor.json")
    parser.add_argument("--beside", type=Path, help="source tree of another version to compare with")
    args = parser.parse_args()
    trees = [ROOT, *([args.beside.resolve()] if args.beside else [])]
    with tempfile.TemporaryDirectory() as folder:
        engine, url = start_engine(folder)
        load = subprocess.Popen(
            [*INFRADOC, "bench", url, "--class", LOAD, "--duration", f"{args.seconds + 30:.0f}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            measured, *others = watch(url, args.seconds, folder, trees)
        finally:
            for child in (load, engine):
                child.terminate()
                child.wait()
    result: dict[str, object] = {
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("infradoc", "numpy", "httpx", "psutil")},
        "sampling_period_seconds": 1.0,
        **figures(measured),
        "watched_seconds": round(measured["seconds"], 1),
    }
    if others:
        result["beside"] = figures(others[0])
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
