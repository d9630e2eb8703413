"""How fast logs are read, how much memory that takes, and what a folder case costs over a bare interpreter.

    python -P bench/bench_logs.py [--megabytes 200] [--gigabytes 2] [--cases tests/data/cases] [--pairs 9] [--write]

The log is made up line by line from the forms that vLLM prints, in a stated mix by bytes: access lines of uvicorn with
many clients, the engine's stats line, tracebacks under a worker's prefix, and lines that no pattern knows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "logs.json"
# Children keep compiled files, as an installed command does.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
MIX = {"access": 0.80, "stats": 0.10, "traceback": 0.08, "other": 0.02}  # by bytes
TRACE = [
    "Traceback (most recent call last):",
    '  File "/usr/local/lib/python3.12/dist-packages/vllm/entrypoints/openai/serving_chat.py", line 212, in create',
    "    generator = self.engine_client.generate(prompt, sampling_params, request_id)",
    '  File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/async_llm.py", line 385, in generate',
    "    q = await self.add_request(request_id, prompt, sampling_params)",
    '  File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/processor.py", line 391, in _validate_model_input',
    "    raise ValueError(",
    "ValueError: The decoder prompt (length 9120) is longer than the maximum model length of 8192. Make sure that "
    "`max_model_len` is no smaller than the number of text tokens.",
]
READ = """
import json, resource, sys, time
from pathlib import Path
from infradoc.artefacts.gather import gather
cpu, wall = time.process_time(), time.perf_counter()
seen = gather(Path(sys.argv[1]))
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
print(json.dumps({"cpu": cpu, "wall": wall, "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "events": sum(event.repeat for event in seen.events), "kept": len(seen.events), "unparsed": seen.unparsed}))
"""


def block(kind: str, rng: random.Random, second: int) -> str:
    """One line (or traceback) of a kind, at a time of day."""
    stamp = f"11-29 {second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    if kind == "access":
        code = rng.choices(("200 OK", "400 Bad Request", "500 Internal Server Error"), (96, 3, 1))[0]
        path = rng.choice(("/v1/chat/completions", "/v1/completions", "/health", "/metrics"))
        verb = "POST" if path.startswith("/v1") else "GET"
        host = f"10.{rng.randrange(4)}.{rng.randrange(256)}.{rng.randrange(256)}:{rng.randrange(1024, 65536)}"
        return f'INFO:     {host} - "{verb} {path} HTTP/1.1" {code}\n'
    if kind == "stats":
        return (
            f"(APIServer pid=28030) INFO {stamp} [loggers.py:257] Engine 000: Avg prompt throughput: "
            f"{rng.uniform(0, 9000):.1f} tokens/s, Avg generation throughput: {rng.uniform(0, 4000):.1f} tokens/s, "
            f"Running: {rng.randrange(200)} reqs, Waiting: {rng.randrange(9)} reqs, GPU KV cache usage: "
            f"{rng.uniform(0, 99):.1f}%, Prefix cache hit rate: {rng.uniform(0, 90):.1f}%\n"
        )
    if kind == "traceback":
        return "".join(f"(APIServer pid=28030) ERROR {stamp} [serving_chat.py:212] {line}\n" for line in TRACE)
    return f"(EngineCore_DP0 pid=28100) DEBUG {stamp} [core.py:{rng.randrange(900)}] tick {rng.getrandbits(48):x}\n"


def write_log(path: Path, size: int) -> None:
    """A log of about `size` bytes in the mix: a few MB again and again, with other unknown lines each time."""
    rng = random.Random(4)
    lengths = {kind: len(block(kind, rng, 0)) for kind in MIX}
    weights = [share / lengths[kind] for kind, share in MIX.items()]
    stretch = "".join(block(kind, rng, i // 40) for i, kind in enumerate(rng.choices(list(MIX), weights, k=60_000)))
    data = stretch.encode()
    with path.open("wb") as handle:
        for number in range(max(1, size // len(data))):
            handle.write(data.replace(b" tick ", b" tick %d " % number))


def read(path: Path) -> dict[str, float]:
    """Read a log in a fresh interpreter."""
    command = [sys.executable, "-P", "-c", READ, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def taken(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of a command."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return time.perf_counter() - began, used.ru_utime + used.ru_stime


def over(command: list[str], bare: list[str], rounds: int) -> tuple[float, float]:
    """Median wall and CPU seconds that a command takes beyond a bare start just before it."""
    pairs = [(taken(bare), taken(command)) for _ in range(rounds)]
    wall, cpu = (statistics.median(long[of] - short[of] for short, long in pairs) for of in (0, 1))
    return wall, cpu


def long_log(path: Path, gigabytes: int) -> dict[str, float]:
    """One log of so many GB, read once."""
    write_log(path, gigabytes * 1_000_000_000)
    size = path.stat().st_size / 1e6
    run = read(path)
    return {"mb": round(size), "mb_per_cpu_second": round(size / run["cpu"], 1), "rss_mib": round(run["rss_mib"])}


def cases(folder: Path, rounds: int) -> dict[str, Any]:
    """What `infradoc diagnose` of one case takes beyond a bare interpreter start, over all cases."""
    bare = [sys.executable, "-P", "-c", "pass"]
    found: list[tuple[float, float, str]] = []
    for case in sorted(path.parent for path in folder.glob("*/label.yaml")):
        command = [sys.executable, "-P", "-m", "infradoc", "diagnose", str(case), "--format", "json"]
        found.append((*over(command, bare, rounds), case.name))
    walls, cpus, _ = zip(*found, strict=True)
    return {
        "bare_start_s": round(statistics.median(taken(bare)[0] for _ in range(rounds)), 3),
        "pairs_a_case": rounds,
        "over_bare_median_s": round(statistics.median(walls), 3),
        "over_bare_max_s": round(max(walls), 3),
        "over_bare_cpu_median_s": round(statistics.median(cpus), 3),
        "over_bare_cpu_max_s": round(max(cpus), 3),
        "slowest": [name for _, _, name in sorted(found, reverse=True)[:3]],
        "cases": len(found),
    }


def main() -> None:
    """Measure, print, and keep with --write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--gigabytes", type=int, default=0, help="read one long log as well")
    parser.add_argument("--rounds", type=int, default=3, help="reads of the log")
    parser.add_argument("--pairs", type=int, default=9, help="runs of each case, each after a bare start")
    parser.add_argument("--cases", type=Path, default=Path(__file__).parent.parent / "tests" / "data" / "cases")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        write_log(log, args.megabytes * 1_000_000)
        size = log.stat().st_size
        runs = [read(log) for _ in range(args.rounds)]
        log.unlink()
        big = long_log(log, args.gigabytes) if args.gigabytes else None
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "mix_by_bytes": MIX,
        "log_mb": round(size / 1e6),
        "mb_per_cpu_second": [round(size / 1e6 / run["cpu"], 1) for run in runs],
        "mb_per_second": [round(size / 1e6 / run["wall"], 1) for run in runs],
        "rss_mib": round(max(run["rss_mib"] for run in runs)),
        "events": runs[0]["events"],
        "events_kept": runs[0]["kept"],
        "unparsed": runs[0]["unparsed"],
        "long_log": big,
        "case": cases(args.cases, args.pairs),
    }
    print(json.dumps(result, indent=1))
    if args.write:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
