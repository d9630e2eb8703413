"""Times of kernels without the gaps between their launches."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

COLD_BYTES = 256 << 20  # what launches between two uses of the same data move, several times any second-level cache
MOST_LAUNCHES = 32


def rotations(bytes_moved: int) -> int:
    """How many sets of inputs to go around, so that none is still in the cache when its turn comes."""
    return max(1, min(MOST_LAUNCHES, -(-COLD_BYTES // max(bytes_moved, 1))))


def time_launches(
    launches: Sequence[Callable[[], object]], seconds: float = 0.05, repeats: int = 30
) -> dict[str, float]:
    """Microseconds of one launch: p20, p50 and p80 over replays of a graph of all `launches`, after warm-up.

    Replays until `seconds` or `repeats` are reached, five at least. Without a GPU: one plain run of each.
    """
    if not torch.cuda.is_available():
        start = time.perf_counter()
        for launch in launches:
            launch()
        return {"p50_us": (time.perf_counter() - start) / len(launches) * 1e6}
    graph = _captured(launches)
    graph.replay()
    torch.cuda.synchronize()
    first = _replay(graph)
    count = max(5, min(repeats, int(seconds * 1e3 / max(first, 1e-3))))
    pairs = [_events() for _ in range(count)]
    for start_event, end in pairs:
        start_event.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    cuts = statistics.quantiles((start_event.elapsed_time(end) for start_event, end in pairs), n=10)
    each = 1e3 / len(launches)
    return {"p20_us": cuts[1] * each, "p50_us": cuts[4] * each, "p80_us": cuts[7] * each}


def _captured(launches: Sequence[Callable[[], object]]) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for launch in launches:
            launch()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for launch in launches:
            launch()
    return graph


def _events() -> tuple[Any, Any]:
    event = torch.cuda.Event  # torch declares it without types
    return event(enable_timing=True), event(enable_timing=True)  # type: ignore[no-untyped-call]


def _replay(graph: torch.cuda.CUDAGraph) -> float:
    start, end = _events()
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))
