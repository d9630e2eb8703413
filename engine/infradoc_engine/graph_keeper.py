"""When CUDA graphs are captured, counted, dropped and done without, over the life of a runner."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from infradoc_engine.budget import MemoryBudget
from infradoc_engine.core.scheduler.output import ScheduledRequest
from infradoc_engine.cuda_graphs import Decoded, DecodeGraphs, measure_cost, refused_memory
from infradoc_engine.kv_cache import KVCache
from infradoc_engine.models.llama import LlamaModel


class GraphKeeper:
    """Decode graphs of a runner. Without a GPU, with `eager` set or `max_batch` 0 it has none and no step replays."""

    def __init__(self, budget: MemoryBudget, *, eager: bool, max_batch: int) -> None:
        self.eager, self.max_batch = eager, max_batch
        self.steps = 0  # that ran as a graph
        self._budget = budget
        self._model: LlamaModel | None = None
        self._graphs: DecodeGraphs | None = None

    @property
    def rows(self) -> int:
        """The largest batch that gets a graph; 0: there are none."""
        if self.eager or self._budget.device.type != "cuda":
            return 0
        return min(self.max_batch, self._budget.limits.max_num_seqs)

    def decode(self, scheduled: Sequence[ScheduledRequest]) -> Decoded | None:
        """Runs a step as a graph; None when it must run eagerly. The first use after a change of the pool captures."""
        graphs = self._graphs
        if graphs is None or self.eager:
            return None
        size = graphs.size_for(scheduled)
        self._budget.note_graphs(graphs.cost)
        if size is None:
            return None
        decoded = graphs.run(scheduled, size)
        self.steps += 1
        return decoded

    def reserve(self, model: LlamaModel, block_size: int) -> None:
        """Measures what graphs will take and notes it in the budget: before the pool is sized, so that it leaves room.

        Raises NotEnoughMemory when there is none, ValueError when this model cannot be captured here.
        """
        self._model = model
        if not self.rows:
            return
        budget = self._budget
        try:
            cache = KVCache(budget.config, 1, block_size, budget.dtype, budget.device)
            length = budget.limits.max_model_len
            cost = measure_cost(model, cache, max_batch=self.rows, max_model_len=length)
        except Exception as error:
            raise self._refusal(error) from error
        if cost is None:
            raise budget.no_graphs(self.rows)
        budget.note_graphs(cost)

    def start(self, cache: KVCache) -> None:
        """Captures over the pool now, so that no request waits for it. Raises as `reserve` does."""
        self.renew(cache)
        if self._graphs is None:
            return
        try:
            self._graphs.capture()
        except Exception as error:
            raise self._refusal(error) from error
        if not self._graphs.sizes:
            raise self._budget.no_graphs(self.rows)
        self._budget.note_graphs(self._graphs.cost)

    def _refusal(self, error: Exception) -> Exception:
        if refused_memory(error):
            return self._budget.no_graphs(self.rows)
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        return ValueError(f"CUDA graphs cannot be captured ({first_line}); start with --enforce-eager.")

    def renew(self, cache: KVCache) -> None:
        """Graphs for this pool and the present limits, captured at first use; without memory decodes run eagerly."""
        rows, length = self.rows, self._budget.limits.max_model_len
        if self._graphs is not None and (self.eager or self._graphs.fits(cache, rows, length)):
            return  # switched off for a while: kept, for switching on again
        self.drop()
        if not rows or self._model is None:
            return
        try:
            with torch.inference_mode():
                self._graphs = DecodeGraphs(self._model, cache, max_batch=rows, max_model_len=length)
        except Exception as error:
            if not refused_memory(error):
                raise

    def forget(self) -> None:
        """The pool's tensors are about to be replaced: capture again before the next replay."""
        if self._graphs is not None:
            self._graphs.forget()

    def drop(self) -> None:
        """Gives the graphs and their buffers up: the pool itself goes."""
        self.forget()
        self._graphs = None
