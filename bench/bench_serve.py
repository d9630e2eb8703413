"""Tokens a second of `infradoc serve` beside another OpenAI-compatible server, interleaved in one run.

usage: bench_serve.py --peer 'COMMAND that serves on --port 8100' --peer-url http://127.0.0.1:8100 --peer-name NAME
       [--rounds 3] [--concurrency 1,8,32] [--out bench/results/serve.json]

128 prompt tokens in, 64 out, greedy, streaming /v1/completions. Both servers stay up; the idle one is stopped with
SIGSTOP, because an idle peer that spins changes a matmul figure fourfold on two cores. The rounds alternate, and the
figure is the median of the rounds: absolute times on a shared box mean little, the ratio in one run does.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

REQUESTS = {1: 4, 8: 16, 32: 64}


class Server:
    """A server process group that can be frozen and thawed."""

    def __init__(self, name: str, command: list[str], url: str, log: Path) -> None:
        self.name, self.url = name, url
        self.process = subprocess.Popen(command, stdout=log.open("w"), stderr=subprocess.STDOUT, start_new_session=True)

    def wait_ready(self, seconds: float = 600) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise SystemExit(f"{self.name} ended with {self.process.returncode} before it was ready")
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=2) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                time.sleep(1)
        raise SystemExit(f"{self.name} was not ready after {seconds:.0f} s")

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def end(self) -> None:
        for number in (signal.SIGCONT, signal.SIGTERM):
            self.signal(number)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)


def measure(server: Server, concurrency: int, seed: int) -> dict[str, Any]:
    """One round: closed loop, every request 128 tokens in and 64 out. Returns the class' part of the bench result."""
    count = REQUESTS.get(concurrency, 2 * concurrency)
    shape = "kind=completion,prompt_tokens=128,max_tokens=64,ignore_eos=true,temperature=0"
    command = [sys.executable, "-P", "-m", "infradoc", "bench", server.url, "--duration", "600", "--json", "-"]
    command += ["--timeout", "600", "--seed", str(seed), "--class", f"load:closed={concurrency},count={count},{shape}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    if done.returncode:
        raise SystemExit(f"bench of {server.name} failed: {done.stderr[-500:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def compare(ours: Server, peer: Server, levels: list[int], rounds: int) -> list[dict[str, Any]]:
    """Alternate the two servers; the one that does not run is frozen."""
    rows = []
    for concurrency in levels:
        for turn in range(rounds):
            for server, other in ((ours, peer), (peer, ours)):
                other.signal(signal.SIGSTOP)
                server.signal(signal.SIGCONT)
                result = measure(server, concurrency, seed=100 * concurrency + turn)
                rows.append({"server": server.name, "concurrency": concurrency, "round": turn, "result": result})
                print(
                    server.name,
                    concurrency,
                    turn,
                    result["classes"]["load"]["tokens_per_second"],
                    file=sys.stderr,
                )
    return rows


def table(rows: list[dict[str, Any]], names: list[str], levels: list[int]) -> list[dict[str, Any]]:
    """Medians over the rounds, and the ratio of ours to the peer."""
    out = []
    for level in levels:
        median = {
            name: statistics.median(
                r["result"]["classes"]["load"]["tokens_per_second"]
                for r in rows
                if r["server"] == name and r["concurrency"] == level
            )
            for name in names
        }
        out.append({"concurrency": level, **median, "ratio": median[names[0]] / median[names[1]]})
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--peer-url", default="http://127.0.0.1:8100")
    parser.add_argument("--peer-name", default="vllm")
    parser.add_argument("--serve", default="--max-num-seqs 32 --max-model-len 2048")
    parser.add_argument("--concurrency", default="1,8,32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("bench/results/serve.json"))
    args = parser.parse_args()
    levels = [int(x) for x in args.concurrency.split(",")]
    logs = Path(tempfile.mkdtemp(prefix="bench-serve-"))
    serve = [sys.executable, "-P", "-m", "infradoc_engine", "serve", "--port", "8190", *shlex.split(args.serve)]
    servers = []
    try:
        servers.append(peer := Server(args.peer_name, shlex.split(args.peer), args.peer_url, logs / "peer.log"))
        peer.wait_ready()
        peer.signal(signal.SIGSTOP)
        servers.append(ours := Server("infradoc", serve, "http://127.0.0.1:8190", logs / "ours.log"))
        ours.wait_ready()
        rows = compare(ours, peer, levels, args.rounds)
    finally:
        for server in servers:
            server.end()
    summary = table(rows, ["infradoc", args.peer_name], levels)
    versions = {name: version(name) for name in ("infradoc", "torch", "numpy", "tokenizers")}
    versions |= {"python": platform.python_version(), "cpus": str(os.cpu_count())}
    args.out.write_text(
        json.dumps(
            {
                "date": datetime.now(UTC).date().isoformat(),
                "load": "128 tokens in, 64 out, greedy, streaming completions, closed loop; output tokens a second",
                "versions": versions,
                "peer": args.peer_name,
                "summary": summary,
                "rounds": [
                    {
                        "server": r["server"],
                        "concurrency": r["concurrency"],
                        "round": r["round"],
                        **r["result"]["classes"]["load"],
                    }
                    for r in rows
                ],
            },
            indent=1,
        )
        + "\n"
    )
    for row in summary:
        print(row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
