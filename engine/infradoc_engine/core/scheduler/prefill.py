"""The prefills of a step: prompts under way, then new ones from the queue, in what the decodes left of the budget."""

from __future__ import annotations

from infradoc_engine.core.kv_cache_manager import Allocation
from infradoc_engine.core.request import Request
from infradoc_engine.core.scheduler.lifecycle import Lifecycle
from infradoc_engine.core.scheduler.limits import SchedulerLimits
from infradoc_engine.core.scheduler.step import StepDraft


class PrefillStage:
    """Computes known tokens in chunks. Strictly in order: one that does not fit holds up the rest, so none starves."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle

    def run(self, step: StepDraft, under_way: list[Request], limits: SchedulerLimits, *, paused: bool = False) -> None:
        """Schedule chunks of `under_way` (in order of admission), then admit.

        Nothing is admitted in a step that took blocks away: the victim stands at the head and would take them back.
        Nor while `paused`.
        """
        for request in under_way:
            if request.state != "running":
                continue
            size = self._chunk(request.num_tokens - request.num_computed_tokens, step.budget, limits)
            if not size:
                return
            step.add_prefill(request, size)
        if not step.ran_out and not paused:
            self._admit(step, limits)

    def _admit(self, step: StepDraft, limits: SchedulerLimits) -> None:
        lifecycle = self._lifecycle
        while step.budget and lifecycle.waiting and len(lifecycle.running) < limits.max_num_seqs:
            request = lifecycle.waiting.head
            if not limits.chunked_prefill and not self._fits_whole(request, step, limits):
                return
            allocation = lifecycle.admit(request)
            if allocation is not None:
                self._start(step, request, allocation, limits)
            elif lifecycle.running:
                return
            else:
                step.finished.append((request.request_id, lifecycle.finish_stuck(request)))

    def _fits_whole(self, request: Request, step: StepDraft, limits: SchedulerLimits) -> bool:
        # A request that waits has computed tokens only if they were swapped out.
        known = request.num_computed_tokens or self._lifecycle.cache.peek_hit_tokens(request)
        to_compute = request.num_tokens - known
        return self._chunk(to_compute, step.budget, limits) > 0

    def _start(self, step: StepDraft, request: Request, allocation: Allocation, limits: SchedulerLimits) -> None:
        (step.resumed if request.preemptions else step.admitted).append(request.request_id)
        if allocation.block_copy is not None:
            step.block_copies.append(allocation.block_copy)
            step.copied.append(request)
        elif self._lifecycle.cache.is_swapped(request):  # until the step is confirmed
            step.swap_in.extend(allocation.swap_in)
            step.copied.append(request)
        size = self._chunk(request.num_tokens - request.num_computed_tokens, step.budget, limits)
        step.add_prefill(request, size)

    @staticmethod
    def _chunk(to_compute: int, budget: int, limits: SchedulerLimits) -> int:
        """Tokens to compute now; 0 when the request must wait for a step with more room."""
        if limits.chunked_prefill or to_compute > limits.max_num_batched_tokens:
            return min(to_compute, budget)  # longer than any step: in one piece it would wait for ever
        return to_compute if to_compute <= budget else 0
