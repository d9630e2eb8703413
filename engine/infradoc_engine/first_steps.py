"""Steps that run before there is a pool: they compile what short steps launch, and measure what a step takes."""

from __future__ import annotations

import torch

from infradoc_engine.allocation import give_back, refusal
from infradoc_engine.budget import MemoryBudget
from infradoc_engine.core.scheduler.output import ScheduledRequest
from infradoc_engine.cuda_sampler import sampler_for
from infradoc_engine.forward import forward
from infradoc_engine.kv_cache import KVCache
from infradoc_engine.memory import measure_peak, trim_heap
from infradoc_engine.models.llama import LlamaModel
from infradoc_engine.runner_limits import activation_bound, largest_step
from infradoc_engine.sampler import SamplingParams


class FirstSteps:
    """One layer is enough: each frees what it took before the next begins, and all launch the same kernels."""

    def __init__(self, model: LlamaModel, budget: MemoryBudget, block_size: int) -> None:
        self._model = model
        self._budget = budget
        self._cache = KVCache(budget.config, 1, block_size, budget.dtype, budget.device)

    def warm_up(self) -> None:
        """GPU: compiles what short steps launch, so that no request waits; a step at the limits compiles the rest.

        Raises NotEnoughMemory.
        """
        if self._budget.device.type != "cuda":
            return
        limits = self._budget.limits
        most = min(limits.max_num_batched_tokens, limits.max_model_len)
        try:
            for count in {1, min(2, most), min(65, most)}:  # a decode, and prefill tiles of few and of many rows
                table = [0] * -(-count // self._cache.block_size)
                self._run([ScheduledRequest("warm-up", [0] * count, 0, table, True, count > 1)])
        except Exception as error:
            raise refusal(self._budget, error, "a first step", None) from error
        give_back(self._budget.device)

    def peak_bytes(self) -> int:
        """Bytes a step at the limits takes beside weights and KV, sampling included. Raises NotEnoughMemory.

        Where nothing can be measured, a bound from the shapes is used.
        """
        budget = self._budget
        step = largest_step(budget.limits, self._cache.block_size)
        try:
            if budget.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(budget.device)
                before = torch.cuda.memory_allocated(budget.device)
                self._run(step)
                highest = int(torch.cuda.max_memory_allocated(budget.device))
                give_back(budget.device)
                return highest - before
            peak = measure_peak(lambda: self._run(step))
            trim_heap()
        except Exception as error:
            raise refusal(budget, error, "a step at the limits", budget.limits.max_num_batched_tokens) from error
        return peak if peak is not None else activation_bound(budget.config, budget.limits)

    def _run(self, step: list[ScheduledRequest]) -> None:
        logits = forward(self._model, step, self._cache, num_layers=1)
        params = [SamplingParams(top_p=0.9, logprobs=1)] * len(step)
        sampler_for(self._budget.device).sample(logits, [s.request_id for s in step], params)
