"""Decode steps as CUDA graphs: one a batch size of the ladder, all reading the same inputs and writing one output.

A graph replays kernels at the addresses it was captured with. The KV pool is among them: when it moves, the graphs are
captured anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from infradoc_engine.core.scheduler.output import ScheduledRequest
from infradoc_engine.decode_batch import StaticBatch, ladder, may_replay, rung
from infradoc_engine.kv_cache import KVCache
from infradoc_engine.models.llama import LlamaModel
from infradoc_engine.refusals import is_out_of_memory


@dataclass(frozen=True, slots=True)
class Decoded:
    """Results of a replay, in rows of the requests; overwritten by the next one."""

    logits: torch.Tensor  # float32 [rows, vocab_size]
    best: torch.Tensor  # int64 [rows], the greedy choice


@dataclass(frozen=True, slots=True)
class GraphCost:
    """Device memory of captured graphs in bytes; `in_torch` of it is in the caching allocator's own count."""

    num_bytes: int = 0
    in_torch: int = 0

    def __add__(self, other: GraphCost) -> GraphCost:
        return GraphCost(self.num_bytes + other.num_bytes, self.in_torch + other.in_torch)


def graph_cost(first: GraphCost, next_one: GraphCost, count: int) -> GraphCost:
    """Cost of `count` graphs from the largest, which fills the pool they share, and one more, which fits into it."""
    more = max(count - 1, 0)
    return GraphCost(first.num_bytes + more * next_one.num_bytes, first.in_torch + more * next_one.in_torch)


def refused_memory(error: BaseException | None) -> bool:
    """True when this error, or the one it came from, is a refused allocation: an abandoned capture raises its own."""
    while error is not None:
        if is_out_of_memory(error):
            return True
        error = error.__cause__ or error.__context__
    return False


@lru_cache(maxsize=8)
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all captures: the matmul library keeps a workspace for each stream it has seen."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class DecodeGraphs:
    """Graphs of one model over one KV pool. One thread at a time; call it in inference mode.

    The first use captures, the largest batch first, so that the others find their memory in its pool. Sizes that find
    no memory are left out: a step then runs in the next larger graph, or without one.
    """

    def __init__(self, model: LlamaModel, cache: KVCache, *, max_batch: int, max_model_len: int) -> None:
        """Allocates inputs and outputs; what the allocator raises goes up."""
        self._model, self._cache = model, cache
        self.wanted = ladder(max_batch)
        self._batch = StaticBatch(max(max_batch, 1), max_model_len, cache.block_size, cache.device)
        device = cache.device
        self._logits = torch.zeros(self._batch.capacity, model.config.vocab_size, dtype=torch.float32, device=device)
        self._best = torch.zeros(self._batch.capacity, dtype=torch.int64, device=device)
        self._rows = torch.arange(self._batch.capacity, device=device)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._sizes: tuple[int, ...] = ()
        self._pool: Any = None
        self._tried = False
        self.cost = self._static = self._static_cost()

    def _static_cost(self) -> GraphCost:
        tensors = (self._logits, self._best, self._rows)
        held = self._batch.num_bytes + sum(t.numel() * t.element_size() for t in tensors)
        return GraphCost(held, held)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Batch sizes that are captured now, ascending."""
        return self._sizes

    def fits(self, cache: KVCache, max_batch: int, max_model_len: int) -> bool:
        """Whether these graphs are the right ones for a pool and limits."""
        return cache is self._cache and (ladder(max_batch), max_model_len) == (self.wanted, self._batch.max_model_len)

    def forget(self) -> None:
        """Drops the graphs, because what they point at is going to move; the next use captures anew."""
        if self._graphs and self._cache.device.type == "cuda":
            torch.cuda.synchronize(self._cache.device)  # a replay may still be under way
        self._graphs.clear()
        self._sizes, self._pool, self._tried = (), None, False
        self.cost = self._static

    def size_for(self, scheduled: Sequence[ScheduledRequest]) -> int | None:
        """The graph that would run this step; None: it must run eagerly."""
        if not may_replay(scheduled) or rung(self.wanted, len(scheduled)) is None:
            return None
        if not self._tried:
            self.capture()
        return rung(self._sizes, len(scheduled))

    def run(self, scheduled: Sequence[ScheduledRequest], size: int) -> Decoded:
        """Replays the graph of `size` (of size_for) over the requests. Does not wait for the device."""
        self._batch.fill(scheduled)
        self._graphs[size].replay()
        rows = len(scheduled)
        return Decoded(self._logits[:rows], self._best[:rows])

    # -- capturing ---------------------------------------------------------------------------------------------------

    def capture(self, sizes: Sequence[int] | None = None) -> list[GraphCost]:
        """Captures `sizes` (all wanted ones if None), the largest first; returns what each took.

        Stops at the first that finds no memory. Other errors go up.
        """
        self._tried = True
        self._batch.clear()
        costs: list[GraphCost] = []
        for size in sorted(self.wanted if sizes is None else sizes, reverse=True):
            try:
                costs.append(self._capture(size))
            except Exception as error:
                if not refused_memory(error):
                    raise
                torch.cuda.empty_cache()
                break
            self.cost += costs[-1]
        self._sizes = tuple(sorted(self._graphs))
        return costs

    def _capture(self, size: int) -> GraphCost:
        device = self._cache.device
        stream = _capture_stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            self._compute(size)  # compiles, loads and sets up what a capture may not
        stream.synchronize()
        torch.cuda.empty_cache()
        used, reserved = _used(device), torch.cuda.memory_reserved(device)
        graph = torch.cuda.CUDAGraph()
        # Other threads may ask the driver for figures while this one captures.
        with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
            self._compute(size)
        torch.cuda.synchronize(device)
        self._pool = self._pool or graph.pool()
        self._graphs[size] = graph
        in_torch = max(torch.cuda.memory_reserved(device) - reserved, 0)
        return GraphCost(max(_used(device) - used, in_torch), in_torch)

    def _compute(self, size: int) -> None:
        """One step over the static inputs, the greedy choice included: greedy rows then need nothing else."""
        batch = self._batch
        step = self._model.step(batch.positions(size), batch.slots(size), batch.block_size, batch.plan(size))
        logits = self._model.forward(batch.token_ids(size), step, self._cache.layers, self._rows[:size])
        self._logits[:size].copy_(logits)
        torch.argmax(logits, dim=-1, out=self._best[:size])


def _used(device: torch.device) -> int:
    free, total = torch.cuda.mem_get_info(device)
    return total - free


def measure_cost(model: LlamaModel, cache: KVCache, *, max_batch: int, max_model_len: int) -> GraphCost | None:
    """What the graphs of a whole ladder will take, from capturing its two largest over a small stand-in of the pool.

    Done before the KV pool is sized, so that the pool leaves room for them. None when not even these find memory.
    """
    graphs = DecodeGraphs(model, cache, max_batch=max_batch, max_model_len=max_model_len)
    largest = graphs.wanted[-2:]
    costs = graphs.capture(largest)
    static = graphs.cost.num_bytes - sum(cost.num_bytes for cost in costs)
    count = len(graphs.wanted)
    graphs.forget()
    torch.cuda.empty_cache()
    if len(costs) < len(largest):
        return None
    if not costs:
        return GraphCost(static, static)
    return graph_cost(costs[0], costs[-1], count) + GraphCost(static, static)
