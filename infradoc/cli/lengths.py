"""`infradoc lengths FILE|URL`: how long requests really are, and the max_model_len that follows from their P99."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from infradoc.cli.args import Parser
from infradoc.config import load_config
from infradoc.errors import visible
from infradoc.lengths.files import read_file
from infradoc.lengths.measured import QUANTILES, Measured, nearest_rank, quantile_bound
from infradoc.lengths.proposal import Limits, Proposal, propose
from infradoc.monitor.attach import is_recording
from infradoc.plurals import counted
from infradoc.signals.percentiles import MIN_SAMPLES_P99, min_samples

SUMMARY = "Measure request lengths; propose max_model_len from the P99."
EXIT_CANNOT_TELL = 30
HELP = """\
FILE: JSON lines with prompt_tokens and completion_tokens (usage objects too), a log with these names, a llama.cpp log,
a recording; gzip is fine. URL: a server that shows length histograms (vLLM, SGLang, TGI, the bundled engine, which
tells its last 128 requests one by one), or a name from infradoc.toml. A P99 needs 100 requests; with fewer the command
proposes nothing and exits with 30.

examples:
  infradoc lengths http://localhost:8000
  infradoc lengths requests.jsonl --max-model-len 32768
"""


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    made = Parser(
        prog="infradoc lengths", description=SUMMARY, epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("source", metavar="FILE|URL", help="where the lengths come from")
    made.add_argument("--max-model-len", type=_tokens, metavar="N", help="the present limit, where the source has none")
    made.add_argument("--kv-pool-tokens", type=_tokens, metavar="N", help="tokens that the KV pool holds, likewise")
    made.add_argument("--format", choices=("text", "json"), default="text", help="text for people, json for programs")
    made.add_argument("--json", dest="format", action="store_const", const="json", help="as --format json")
    made.add_argument("--config", metavar="FILE", help="default: infradoc.toml here, then in ~/.config/infradoc")
    return made


def _tokens(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of tokens")
    return int(text)


def run(argv: list[str]) -> int:
    """Print the lengths; 0 with a proposal, 30 without one. Raises InfradocError when there are no lengths."""
    args = parser().parse_args(argv)
    measured, limits = _read(args.source, args.config)
    limits = replace(
        limits,
        max_model_len=args.max_model_len or limits.max_model_len,
        pool_tokens=args.kv_pool_tokens or limits.pool_tokens,
    )
    proposal = propose(measured, limits)
    if args.format == "json":
        json.dump(as_data(measured, proposal), sys.stdout, indent=1)
        print()
    else:
        print("\n".join(as_text(measured, limits, proposal)))
    return 0 if proposal is not None else EXIT_CANNOT_TELL


def _read(source: str, config_file: str | None) -> tuple[Measured, Limits]:
    from infradoc.lengths.live import read_recording, read_server  # not above: a file needs no HTTP client
    from infradoc.sources.archive import is_archive

    config = load_config(config_file)
    if not is_recording(source, config):
        return read_server(source, config)
    path = Path(source).expanduser()
    return read_recording(path) if path.is_dir() or is_archive(path) else (read_file(path), Limits())


def as_data(measured: Measured, proposal: Proposal | None) -> dict[str, Any]:
    """What the text says, as data: tokens; quantiles of the total are upper bounds when `exact` is false."""
    total = {f"p{round(q * 100)}": measured.total_quantile(q) for q in QUANTILES}
    return {
        "schema": "infradoc.lengths/v1",
        "source": measured.source,
        "requests": measured.n,
        "exact": measured.exact,
        "skipped": measured.skipped,
        "prompt": _parts(measured, "prompt"),
        "output": _parts(measured, "output"),
        "total": total | {"max": measured.longest()},
        "proposal": None if proposal is None else asdict(proposal) | {"change": proposal.change},
    }


def _parts(measured: Measured, part: str) -> dict[str, float | None]:
    if measured.bounds is not None:
        buckets = getattr(measured.bounds, part)
        return {f"p{round(q * 100)}": quantile_bound(buckets, q) for q in QUANTILES} | {"max": None}
    values: list[int] = getattr(measured, f"{part}s")
    ranks = {
        f"p{round(q * 100)}": nearest_rank(values, q) if len(values) >= min_samples(q) else None for q in QUANTILES
    }
    return ranks | {"max": max(values) if values else None}


def as_text(measured: Measured, limits: Limits, proposal: Proposal | None) -> list[str]:
    """For people: the table, the proposal, its price and its gain."""
    kind = "each request counted" if measured.exact else "upper bounds: prompt and output are known apart, in buckets"
    lines = [f"{counted(measured.n, 'request')} from {visible(measured.source)} ({kind})"]
    if measured.skipped:
        lines.append(f"left out: {counted(measured.skipped, 'row')} without usable lengths")
    data = as_data(measured, proposal)
    lines += _table(data)
    lines.append("")
    if proposal is None:
        lines.append(_too_few(measured))
        return lines
    return lines + _proposal_lines(proposal, limits)


def _table(data: dict[str, Any]) -> list[str]:
    """Columns as wide as their numbers need: counts of a damaged log may have ten digits."""
    rows = [["tokens", "P50", "P90", "P99", "max"]]
    for name, key in (("prompt", "prompt"), ("output", "output"), ("prompt + output", "total")):
        cells = (data[key][part] for part in ("p50", "p90", "p99", "max"))
        rows.append([name, *("-" if cell is None else format(cell, ",.0f") for cell in cells)])
    widths = [max(9, 2 + max(len(row[column]) for row in rows)) for column in range(1, 5)]
    return [
        f"{row[0]:<18}" + "".join(f"{cell:>{width}}" for cell, width in zip(row[1:], widths, strict=True))
        for row in rows
    ]


def _too_few(measured: Measured) -> str:
    if measured.n >= MIN_SAMPLES_P99:
        return "No proposal: the P99 lies beyond the last bucket of the histogram. Give a log or JSON lines."
    longest = measured.longest()
    so_far = f" (longest so far: {longest:,} tokens)" if longest is not None else ""
    there = f"there {'is' if measured.n == 1 else 'are'} {measured.n}{so_far}"
    return f"No proposal: a P99 needs {MIN_SAMPLES_P99} requests, {there}. Come back with more."


def _proposal_lines(proposal: Proposal, limits: Limits) -> list[str]:
    present = "" if proposal.present is None else f"{proposal.present:,} -> "
    lines = [f"max_model_len  {present}{proposal.tokens:,}   (P99 of prompt + output in whole blocks)"]
    if proposal.change == "keep":
        lines[0] = f"max_model_len  {proposal.tokens:,} fits already (P99 of prompt + output in whole blocks)"
    if proposal.above:
        lines.append(
            f"  price: {proposal.above:,} of {counted(proposal.n, 'request')} longer (longest {proposal.longest:,}), "
            "to be refused or cut"
        )
    elif proposal.above is None:
        lines.append("  price: at most 1 % of the requests were longer; they would be refused or cut")
    else:
        lines.append(f"  price: none of the {counted(proposal.n, 'request')} was longer")
    if proposal.concurrency_after is not None:
        before = "" if proposal.concurrency_before is None else f"{proposal.concurrency_before:.1f} -> "
        lines.append(f"  gain: requests of full length that fit at once: {before}{proposal.concurrency_after:.1f}")
    elif limits.pool_tokens is None:
        lines.append("  gain: not known without the KV pool's size (--kv-pool-tokens)")
    unnamed = f"max_model_len {proposal.tokens} (of one request; llama.cpp's --ctx-size is that times --parallel)"
    lines.append(f"  flag: {proposal.flag or unnamed}")
    return lines
