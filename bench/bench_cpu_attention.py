"""Paged attention on the CPU: the compiled kernels beside gather-and-SDPA, interleaved in one run.

usage: bench_cpu_attention.py [--threads 2] [--rounds 15] [--out bench/results/cpu_attention.json]

All 30 layers of a SmolLM2-135M step (9 heads, 3 KV heads, head_dim 64, blocks of 16, shuffled), each layer with a cache
of its own, so that every layer reads memory and not the processor's cache. Times are milliseconds, median and least of
the rounds; `bound_ms` is the KV bytes of the step over the read bandwidth that the same run measures.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from infradoc_kernels.cpu import paged_attention as compiled
from infradoc_kernels.reference import paged_attention as reference

LAYERS, HEADS, KV_HEADS, HEAD_DIM, BLOCK = 30, 9, 3, 64, 16
SCALE = HEAD_DIM**-0.5
Lens = Sequence[int]
CASES: dict[str, tuple[Lens, Lens]] = {  # query lengths, context lengths
    "decode 1 x 192": ([1], [192]),
    "decode 8 x 192": ([1] * 8, [192] * 8),
    "decode 32 x 192": ([1] * 32, [192] * 32),
    "decode 32 x 1024": ([1] * 32, [1024] * 32),
    "decode 1 x 4096": ([1], [4096]),
    "decode 8, 64 to 3000": ([1] * 8, [3000, 100, 64, 500, 64, 64, 64, 64]),
    "prefill 1 x 128": ([128], [128]),
    "prefill 4 x 128": ([128] * 4, [128] * 4),
    "prefill 512 after 1536": ([512], [2048]),
    "chunk 128 beside 31 decodes": ([128] + [1] * 31, [128] + [192] * 31),
}


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


def read_bandwidth() -> float:
    """Bytes a second of the best of 9 sums over 256 MiB."""
    numbers = torch.ones(64 << 20)
    return numbers.numel() * 4e3 / min(timed(numbers.sum) for _ in range(9))


def gather_and_sdpa(
    q: torch.Tensor, caches: Sequence[tuple[torch.Tensor, torch.Tensor]], tables: list[list[int]], context_lens: Lens
) -> torch.Tensor:
    """The plain way for a step of decodes: blocks of all rows into one padded tensor, then torch's attention.

    q: [num_rows, HEADS, HEAD_DIM]. The package's reference is faster: it gathers in groups, into a scratch that is
    used again.
    """
    width = max(len(table) for table in tables)
    padded = torch.tensor([table + [0] * (width - len(table)) for table in tables])
    mask = (torch.arange(width * BLOCK) < torch.tensor(context_lens)[:, None])[:, None, None]
    for k_cache, v_cache in caches:
        # [num_rows, KV_HEADS, width * BLOCK, HEAD_DIM]
        k, v = (
            part[padded].transpose(1, 2).reshape(len(tables), KV_HEADS, -1, HEAD_DIM) for part in (k_cache, v_cache)
        )
        out = torch.nn.functional.scaled_dot_product_attention(
            q[:, :, None], k, v, attn_mask=mask, scale=SCALE, enable_gqa=True
        )
    return out[:, :, 0]


def measure(query_lens: Lens, context_lens: Lens, rounds: int) -> dict[str, Any]:
    """Both versions of one step, in turns."""
    counts = [-(-n // BLOCK) for n in context_lens]
    ids = list(range(sum(counts)))
    random.Random(0).shuffle(ids)
    tables = [[ids.pop() for _ in range(count)] for count in counts]
    shape = (sum(counts), KV_HEADS, BLOCK, HEAD_DIM)
    caches = [(torch.randn(shape), torch.randn(shape)) for _ in range(LAYERS)]
    q = torch.randn(sum(query_lens), HEADS, HEAD_DIM)
    results: dict[str, torch.Tensor] = {}

    def ours() -> None:
        plan = compiled.plan_compiled(tables, query_lens, context_lens, block_size=BLOCK)
        for k_cache, v_cache in caches:
            results["compiled"] = compiled.paged_attention(q, k_cache, v_cache, plan, SCALE)

    def theirs() -> None:
        plan = reference.plan_attention(
            tables, query_lens, context_lens, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM, block_size=BLOCK
        )
        for k_cache, v_cache in caches:
            results["reference"] = reference.paged_attention(q, k_cache, v_cache, plan, SCALE)

    contenders: dict[str, Callable[[], None]] = {"compiled": ours, "reference": theirs}
    if max(query_lens) == 1:
        contenders["gather_sdpa"] = lambda: results.update(gather_sdpa=gather_and_sdpa(q, caches, tables, context_lens))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):  # the first is a warm-up
        for name, run in contenders.items():
            spent = timed(run)
            if turn:
                times[name].append(spent)
    for name in contenders:
        torch.testing.assert_close(results[name], results["reference"], atol=1e-5, rtol=1e-5)
    row: dict[str, Any] = {"kv_megabytes": sum(context_lens) * 2 * 4 * LAYERS * KV_HEADS * HEAD_DIM / 1e6}
    for name, values in times.items():
        row |= {f"{name}_ms": statistics.median(values), f"{name}_least_ms": min(values)}
    for name, key in (("reference", "ratio"), ("gather_sdpa", "gather_sdpa_ratio")):
        if name in times:
            row[key] = statistics.median(b / a for a, b in zip(times["compiled"], times[name], strict=True))
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path("bench/results/cpu_attention.json"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    bandwidth = read_bandwidth()
    rows = []
    with torch.inference_mode():
        for name, (query_lens, context_lens) in CASES.items():
            row = {"case": name, **measure(query_lens, context_lens, args.rounds)}
            row["bound_ms"] = row["kv_megabytes"] * 1e9 / bandwidth
            rows.append(row)
            print(
                f"{name:28} compiled {row['compiled_ms']:8.2f} ms  reference {row['reference_ms']:8.2f} ms  "
                f"ratio {row['ratio']:5.2f}  gather and SDPA {row.get('gather_sdpa_ratio', float('nan')):5.2f}  "
                f"KV bytes over bandwidth {row['bound_ms']:6.2f} ms",
                file=sys.stderr,
                flush=True,
            )
    about = {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {name: version(name) for name in ("torch", "numba", "llvmlite", "numpy")},
        "python": platform.python_version(),
        "threads": args.threads,
        "load_average": os.getloadavg()[0],
        "read_gigabytes_per_second": bandwidth / 1e9,
    }
    args.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
