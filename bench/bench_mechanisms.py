"""What each mechanism of `infradoc playbook` does, measured on the bundled engine; writes the pages' tables.

usage: bench_mechanisms.py [--only NAME,...] [--rounds 3] [--seconds 20] [--out bench/results/mechanisms.json]
       bench_mechanisms.py --tables        only write the tables of the committed results into the pages

The variants of a mechanism take turns, each with a server of its own, the same load and the same seed; a figure is the
median of the rounds. They are figures of one small model in float32 on the box that the results name: what carries over
is the direction and the reason, not the number.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "playbooks" / "infradoc_playbooks" / "mechanisms"
MODEL = "smollm2-135m"
_SAMPLE = re.compile(r"^([a-z_]+)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)
_TABLE = re.compile(r"(<!-- measured -->\n).*?(<!-- end -->)", re.DOTALL)

# What a column is called, and how its figure is written.
COLUMNS: Mapping[str, tuple[str, str, str]] = {
    "tokens_per_second": ("tokens/s", "token/s", "{:.0f}"),
    "chat_tokens_per_second": ("chat tokens/s", "对话 token/s", "{:.0f}"),
    "ttft_p50": ("TTFT P50, s", "TTFT P50，秒", "{:.2f}"),
    "document_ttft_p50": ("document TTFT P50, s", "文档 TTFT P50，秒", "{:.2f}"),
    "e2e_p50": ("end-to-end P50, s", "端到端 P50，秒", "{:.2f}"),
    "chat_itl_p50": ("chat ITL P50, ms", "对话 ITL P50，毫秒", "{:.0f}"),
    "chat_itl_p99": ("chat ITL P99, ms", "对话 ITL P99，毫秒", "{:.0f}"),
    "running_mean": ("running, mean", "运行中，平均", "{:.1f}"),
    "usage_mean": ("KV use, mean", "KV 占用，平均", "{:.0%}"),
    "tail_waste_share": ("empty part of live blocks", "在用块中空着的部分", "{:.0%}"),
    "preemptions": ("preemptions a request", "每请求抢占次数", "{:.2f}"),
    "recomputed_share": ("computed again, of generated", "重算占生成", "{:.0%}"),
    "prefix_hit_share": ("prompt from cache", "提示来自缓存", "{:.0%}"),
    "moved_mib": ("moved to host and back, MiB", "换出换入，MiB", "{:.0f}"),
    "loop_lag_mean": ("event-loop lag, mean ms", "事件循环滞后，平均毫秒", "{:.1f}"),
}


def scrape(url: str) -> dict[str, float]:
    """Sums over labels of every sample of the server's page."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
        page = answer.read().decode()
    sums: dict[str, float] = {}
    for name, value in _SAMPLE.findall(page):
        sums[name] = sums.get(name, 0.0) + float(value)
    sums["live_blocks"] = sum(
        float(value) for value in re.findall(r'^llm_kv_blocks\{state="(?:live|shared)"\} (\S+)$', page, re.MULTILINE)
    )
    return sums


class Sampler(threading.Thread):
    """Reads the page once a second while the load runs: gauges have no history of their own."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.rows: list[dict[str, float]] = []
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(1.0):
            self.rows.append(scrape(self.url))

    def mean(self, name: str) -> float:
        """Mean of a gauge over the samples in which requests ran."""
        values = [row[name] for row in self.rows if row["llm_requests_running"] > 0]
        return statistics.fmean(values) if values else 0.0


@contextmanager
def server(flags: list[str], log: Path) -> Iterator[str]:
    """A bundled engine with these flags; gives its URL."""
    command = [sys.executable, "-P", "-m", "infradoc", "serve", MODEL, "--port", "0", *flags]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield _address(process, log)
    finally:
        process.terminate()
        process.wait(30)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        if found := re.search(r"ready on (http://\S+)", log.read_text()):
            return found.group(1)
        time.sleep(0.2)
    raise SystemExit(f"the engine did not start: {log.read_text()[-500:]}")


def send(url: str, classes: list[str], seconds: float, seed: int) -> dict[str, Any]:
    """One load by `infradoc bench`; its result."""
    command = [sys.executable, "-P", "-m", "infradoc", "bench", url, "--json", "-", "--seed", str(seed)]
    command += ["--duration", f"{seconds:.0f}s", "--timeout", "300s"]
    for text in classes:
        command += ["--class", text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise SystemExit(f"bench ended with {done.returncode}: {done.stderr[-500:]} {done.stdout[-500:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def static_batches(url: str, classes: list[str], size: int, seconds: float, seed: int) -> dict[str, Any]:
    """Closed groups of `size` requests, each group after the last one ended; the time counted is that of the groups."""
    results: list[dict[str, Any]] = []
    spent = 0.0
    while spent < seconds:
        result = send(url, [f"{text},count={size}" for text in classes], 600, seed + len(results))
        spent += result["measured"]["seconds"]
        results.append(result)
    merged = results[0]
    total = [one["total"] for one in results]
    tokens = sum(one["total"]["tokens_per_second"] * one["measured"]["seconds"] for one in results)
    for part in (merged["total"], *merged["classes"].values()):
        part["tokens_per_second"] = tokens / spent
        part["finished"] = sum(one["finished"] for one in total)
        for key in ("ttft_seconds", "e2e_seconds", "itl_seconds"):
            part[key]["p50"] = statistics.median(one[key]["p50"] for one in total)
    return merged


def figures(result: dict[str, Any], before: dict[str, float], after: dict[str, float], seen: Sampler) -> dict[str, Any]:
    """Every column's figure of one run; null where this load has none."""
    grown = {name: after[name] - before.get(name, 0.0) for name in after}
    total, classes = result["total"], result["classes"]
    live = seen.mean("live_blocks") * after["llm_kv_block_size_tokens"]
    lag = grown.get("proc_event_loop_lag_seconds_count", 0.0)
    out: dict[str, Any] = {
        "tokens_per_second": total["tokens_per_second"],
        "ttft_p50": total["ttft_seconds"]["p50"],
        "e2e_p50": total["e2e_seconds"]["p50"],
        "running_mean": seen.mean("llm_requests_running"),
        "usage_mean": seen.mean("llm_kv_cache_usage_ratio"),
        "tail_waste_share": seen.mean("llm_kv_tail_waste_tokens") / live if live else None,
        "preemptions": _share(grown["llm_preemptions_total"], grown["llm_requests_finished_total"]),
        "recomputed_share": _share(grown["llm_recomputed_tokens_total"], grown["llm_generation_tokens_total"]),
        "prefix_hit_share": _share(grown["llm_prefix_cache_hit_tokens_total"], grown["llm_prompt_tokens_total"]),
        "moved_mib": grown["llm_kv_transfer_bytes_total"] / 2**20,
        "loop_lag_mean": 1e3 * grown["proc_event_loop_lag_seconds_sum"] / lag if lag else None,
        "finished": total["finished"],
        "errors": total["errors"],
    }
    if "chat" in classes:
        chat = classes["chat"]
        out["chat_tokens_per_second"] = chat["tokens_per_second"]
        out["chat_itl_p50"], out["chat_itl_p99"] = (_ms(chat["itl_seconds"][key]) for key in ("p50", "p99"))
    if "document" in classes:
        out["document_ttft_p50"] = classes["document"]["ttft_seconds"]["p50"]
    return out


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds


def run_once(
    mechanism: dict[str, Any], variant: dict[str, Any], seconds: float, seed: int, log: Path
) -> dict[str, Any]:
    """One variant once: its own server, a short warm-up, the load."""
    with server([*mechanism["serve"], *variant["serve"]], log) as url:
        send(url, ["chat:closed=2,count=4,kind=completion,prompt_tokens=16,max_tokens=8"], 60, 99)
        before, seen = scrape(url), Sampler(url)
        seen.start()
        if batches := variant.get("batches"):
            result = static_batches(url, mechanism["load"], batches, seconds, seed)
        else:
            result = send(url, mechanism["load"], seconds, seed)
        seen.done.set()
        return figures(result, before, scrape(url), seen)


def measure(mechanism: dict[str, Any], rounds: int, seconds: float, name: str) -> list[dict[str, Any]]:
    """All variants in turn, `rounds` times; medians by variant."""
    runs: list[list[dict[str, Any]]] = [[] for _ in mechanism["variants"]]
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds):
            for index, variant in enumerate(mechanism["variants"]):
                runs[index].append(run_once(mechanism, variant, seconds, 100 + turn, Path(folder) / "log"))
                print(name, variant["en"], json.dumps(runs[index][-1]), file=sys.stderr, flush=True)
    return [_median(variant, done) for variant, done in zip(mechanism["variants"], runs, strict=True)]


def _median(variant: dict[str, Any], runs: list[dict[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {"en": variant["en"], "zh": variant["zh"], "rounds": len(runs)}
    for key in runs[0]:
        values = [run[key] for run in runs if isinstance(run[key], int | float)]
        if values:
            row[key] = round(statistics.median(values), 4)
    row["errors"] = sum(sum(run["errors"].values()) for run in runs)
    return row


def table(mechanism: dict[str, Any], measured: dict[str, Any], lang: str) -> str:
    """The Markdown table of one page, and a line on what it was measured with."""
    which = 0 if lang == "en" else 1
    keys = mechanism["columns"]
    lines = ["| |" + "".join(f" {COLUMNS[key][which]} |" for key in keys), "|---|" + "---|" * len(keys)]
    for row in measured["rows"]:
        cells = [COLUMNS[key][2].format(row[key]) if row.get(key) is not None else "-" for key in keys]
        lines.append(f"| {row[lang]} | " + " | ".join(cells) + " |")
    about = measured["about"]
    load = " ".join(f"--class '{one}'" for one in mechanism["load"])
    rounds = about["rounds"]
    en = "one round" if rounds == 1 else f"medians of {rounds} rounds"
    zh = "一轮" if rounds == 1 else f"{rounds} 轮的中位数"
    said = (
        f"`infradoc bench URL {load}`; {about['model']}, {about['dtype']}, {about['cores']} cores, "
        f"infradoc {about['infradoc']}, torch {about['torch']}, {about['date']}; {en}, {about['seconds']:.0f} s each."
        if lang == "en"
        else f"`infradoc bench URL {load}`；{about['model']}，{about['dtype']}，{about['cores']} 核，"
        f"infradoc {about['infradoc']}，torch {about['torch']}，{about['date']}；{zh}，每轮 {about['seconds']:.0f} 秒。"
    )
    return "\n".join([*lines, "", said, ""])


def write_tables(mechanisms: dict[str, Any], results: dict[str, Any]) -> None:
    """Put the measured tables between the marks of each page."""
    for name, measured in results.items():
        for lang in ("en", "zh"):
            page = PAGES / f"{name}.{lang}.md"
            made = table(mechanisms[name], measured, lang)
            page.write_text(_TABLE.sub(lambda mark, made=made: mark[1] + made + mark[2], page.read_text()))  # type: ignore[misc]


def main() -> int:
    """Measure what was asked for, keep the rest of the results, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names, with commas between")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--tables", action="store_true", help="measure nothing")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "mechanisms.json")
    args = parser.parse_args()
    mechanisms: dict[str, Any] = tomllib.loads((ROOT / "bench" / "mechanisms.toml").read_text())
    results: dict[str, Any] = json.loads(args.out.read_text()) if args.out.exists() else {}
    wanted = [] if args.tables else [name for name in args.only.split(",") if name] or list(mechanisms)
    for name in wanted:
        rows = measure(mechanisms[name], args.rounds, args.seconds, name)
        results[name] = {"rows": rows, "about": about(args.rounds, args.seconds)}
        args.out.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    write_tables(mechanisms, results)
    return 0


def about(rounds: int, seconds: float) -> dict[str, Any]:
    """What the figures were measured with."""
    return {
        "model": "SmolLM2-135M-Instruct",
        "dtype": "float32",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": version("torch").split("+")[0],
        "infradoc": version("infradoc"),
        "date": datetime.now(UTC).date().isoformat(),
        "rounds": rounds,
        "seconds": seconds,
    }


if __name__ == "__main__":
    raise SystemExit(main())
