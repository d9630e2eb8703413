"""A decode step of SmolLM2-135M through ModelRunner.execute on the CPU: what it takes, and what its matmuls take alone.

usage: bench_cpu_step.py [--threads 2] [--rounds 9] [--out bench/results/cpu_step.json]

Three figures of each step size, interleaved in one run: the step with the compiled kernels, the step with the PyTorch
references in their place, and the step's 121 packed matmuls alone, which is the floor. Contexts of 192 tokens that were
really written (memory that nobody wrote is one shared page, and reads like cache). `weights_ms` is the weight bytes
over the read bandwidth that the same run measures: the floor of a step with one row.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from infradoc_engine.core.scheduler.output import ScheduledRequest, ScheduleOutput
from infradoc_engine.model_get import get_model
from infradoc_engine.model_runner import ModelRunner
from infradoc_engine.weights import open_model
from infradoc_kernels import ops

CONTEXT, BLOCK, ROWS = 192, 16, (1, 8, 32)


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


def request(index: int, token_ids: list[int], start: int) -> ScheduledRequest:
    width = CONTEXT // BLOCK
    table = list(range(index * width, (index + 1) * width))
    return ScheduledRequest(str(index), token_ids, start, table, True, len(token_ids) > 1)


def decode(rows: int) -> ScheduleOutput:
    return ScheduleOutput(0, [request(i, [5 + i], CONTEXT - 1) for i in range(rows)])


def prefill(rows: int, tokens: int = 128) -> ScheduleOutput:
    return ScheduleOutput(0, [request(i, list(range(5, 5 + tokens)), 0) for i in range(rows)])


def matmuls(model: Any, rows: int, sampled: int) -> Callable[[], None]:
    """All linear layers of a step on random numbers; the head only over the rows that sample."""
    layers = [
        linear
        for layer in model._layers
        for linear in (layer.attention.qkv, layer.attention.out, layer.mlp.gate_up, layer.mlp.down)
    ]
    inputs = {linear.in_features: torch.randn(rows, linear.in_features) for linear in layers}
    last = torch.randn(sampled, model._head.in_features)

    def run() -> None:
        with torch.inference_mode():
            for linear in layers:
                linear(inputs[linear.in_features])
            model._head(last)

    return run


@contextmanager
def reference_kernels() -> Iterator[None]:
    """The operations as they are where numba is missing."""
    has_numba = ops._has_numba
    ops._pick.cache_clear()
    ops._has_numba = lambda: False  # type: ignore[assignment]
    try:
        yield
    finally:
        ops._has_numba = has_numba
        ops._pick.cache_clear()


def measure(runner: ModelRunner, output: ScheduleOutput, floor: Callable[[], None], rounds: int) -> dict[str, float]:
    def plain() -> None:
        with reference_kernels():
            runner.execute(output, {})

    runs = {"step": lambda: runner.execute(output, {}), "reference_step": plain, "matmuls": floor}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):  # the first is a warm-up
        for name, run in runs.items():
            spent = timed(run)
            if turn:
                times[name].append(spent)
    row = {f"{name}_ms": statistics.median(values) for name, values in times.items()}
    row |= {f"{name}_least_ms": min(values) for name, values in times.items()}
    return row | {
        "matmul_share": statistics.median(a / b for a, b in zip(times["matmuls"], times["step"], strict=True))
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=Path("bench/results/cpu_step.json"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    numbers = torch.ones(64 << 20)
    bandwidth = numbers.numel() * 4e3 / min(timed(numbers.sum) for _ in range(9))
    files = open_model(get_model("smollm2-135m"))
    limits = {"max_model_len": 256, "max_num_seqs": 32, "max_num_batched_tokens": 512}
    runner = ModelRunner(files, kv_pool_tokens=32 * CONTEXT, **limits)  # type: ignore[arg-type]
    model = runner._model
    for index in range(32):  # every slot of every context is written
        runner.execute(ScheduleOutput(0, [request(index, list(range(5, 5 + CONTEXT)), 0)]), {})
    rows: list[dict[str, Any]] = []
    steps = [(f"decode {n}", decode(n), n, n) for n in ROWS]
    steps += [(f"prefill {n} x 128", prefill(n), n * 128, n) for n in (1, 4)]
    for name, output, tokens, sampled in steps:
        rows.append({"step": name, **measure(runner, output, matmuls(model, tokens, sampled), args.rounds)})
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    matmul_bytes = 4 * sum(
        linear.in_features * linear.out_features
        for layer in model._layers
        for linear in (layer.attention.qkv, layer.attention.out, layer.mlp.gate_up, layer.mlp.down)
    )
    matmul_bytes += 4 * model._head.in_features * model._head.out_features
    about = {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {name: version(name) for name in ("torch", "numba", "llvmlite", "numpy")},
        "python": platform.python_version(),
        "threads": args.threads,
        "load_average": os.getloadavg()[0],
        "read_gigabytes_per_second": bandwidth / 1e9,
        "weights_ms": matmul_bytes / bandwidth * 1e3,
    }
    args.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
