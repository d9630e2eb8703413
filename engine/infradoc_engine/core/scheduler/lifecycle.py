"""The ways a request moves between waiting, running and finished; the only code that takes or gives its blocks.

One place, so that every path frees exactly once.
"""

from __future__ import annotations

from dataclasses import replace

from infradoc_engine.core.clock import Clock
from infradoc_engine.core.kv_cache_manager import Allocation, KVCacheManager
from infradoc_engine.core.request import FinishReason, Preemption, PreemptReason, Request
from infradoc_engine.core.scheduler.queue import RequestQueue
from infradoc_engine.core.scheduler.stats import SchedulerStats
from infradoc_engine.core.scheduler.step import StepDraft


class Lifecycle:
    """All known requests by state. `running` is in order of admission."""

    def __init__(self, cache: KVCacheManager, clock: Clock) -> None:
        self.cache = cache
        self.clock = clock
        self.stats = SchedulerStats()
        self.requests: dict[str, Request] = {}
        self.running: dict[str, Request] = {}
        self.waiting = RequestQueue()
        self.lost_until: dict[str, int] = {}  # positions below were computed once and lost to a preemption
        self.unreported: list[tuple[str, Preemption]] = []  # preemptions that no ScheduleOutput has named yet

    def enqueue(self, request: Request) -> None:
        """A new request waits behind all others."""
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def admit(self, request: Request) -> Allocation | None:
        """Waiting -> running with blocks for all its known tokens; None, and no change, when they are not there.

        A swapped request comes back with what it had computed. The reserve is for growth of others: with none running
        it would only lock the pool.
        """
        take = self.cache.swap_in if self.cache.is_swapped(request) else self.cache.allocate
        allocation = take(request, use_reserve=not self.running)
        if allocation is None:
            return None
        self.waiting.remove(request)
        request.state = "running"
        self.running[request.request_id] = request
        self._count_admission(request, allocation.num_hit_tokens)
        return allocation

    def _count_admission(self, request: Request, num_hit_tokens: int) -> None:
        if request.preemptions:
            self.stats.resumed_hit_tokens += num_hit_tokens
            return
        num_prompt = len(request.prompt_token_ids)
        request.num_cached_tokens = num_hit_tokens
        self.stats.prompt_tokens += num_prompt
        if self.cache.prefix_caching:
            self.stats.prefix_queried_tokens += num_prompt
            self.stats.prefix_hit_tokens += num_hit_tokens

    def last_admitted(self) -> Request:
        """The running request that is preempted first; it has the least to lose. StopIteration when none runs."""
        return self.running[next(reversed(self.running))]

    def preempt(
        self, request: Request, reason: PreemptReason, for_request: str, step: StepDraft | None = None
    ) -> Preemption:
        """Running -> head of waiting, without blocks. What it sampled stays and is computed again, as a prompt is.

        Unless `step` swaps its victims and the host pool has room. Without a step nothing can be copied before the
        blocks have other owners; only a request whose own swap-in is not confirmed still has its host copy then.
        """
        swapped = self.cache.is_swapped(request)
        if swapped:
            self.cache.swaps.stays(request.request_id)
        elif step is not None and step.swap:
            swapped = self._swap_out(request, step)
        lost = 0 if swapped else request.num_computed_tokens
        preemption = Preemption(self.clock.now(), reason, lost, for_request, "swap" if swapped else "recompute")
        del self.running[request.request_id]
        self.cache.free(request)
        if not swapped:
            self._lose(request)
        request.state = "waiting"
        request.preemptions.append(preemption)
        self.waiting.push_head(request)
        self.stats.preemptions[reason] += 1
        return preemption

    def _swap_out(self, request: Request, step: StepDraft) -> bool:
        pairs = self.cache.swap_out(request)
        if pairs is None:
            self.stats.swaps_refused += request.num_computed_tokens > 0
            return False
        step.swap_out.extend(pairs)
        step.swapped_out.append(request)
        return True

    def _lose(self, request: Request) -> None:
        lost, request.num_computed_tokens = request.num_computed_tokens, 0
        self.lost_until[request.request_id] = max(lost, self.lost_until.get(request.request_id, 0))

    def lose_swap(self, request: Request) -> None:
        """The host copy of a waiting request is not to be had any more: its last preemption becomes a recompute."""
        self.cache.swaps.drop(request.request_id)
        request.preemptions[-1] = replace(
            request.preemptions[-1], mode="recompute", lost_tokens=request.num_computed_tokens
        )
        self._lose(request)
        self.stats.swaps_lost += 1

    def swapped(self) -> list[Request]:
        """Waiting requests with a host copy."""
        return [request for request in self.waiting.snapshot() if self.cache.is_swapped(request)]

    def take_unreported(self) -> list[tuple[str, Preemption]]:
        """Preemptions from outside a step since the last call, of requests that still exist."""
        if not self.unreported:
            return []
        taken, self.unreported = self.unreported, []
        return [(request_id, preemption) for request_id, preemption in taken if request_id in self.requests]

    def finish(self, request: Request, reason: FinishReason) -> None:
        """Waiting or running -> finished; the scheduler no longer knows it."""
        if request.state == "running":
            del self.running[request.request_id]
            self.cache.free(request)
        else:
            self.waiting.remove(request)
        del self.requests[request.request_id]
        self.lost_until.pop(request.request_id, None)
        self.cache.forget(request.request_id)
        request.state = "finished"
        request.finish_reason = reason
        self.stats.finished[reason] += 1

    def finish_stuck(self, request: Request) -> FinishReason:
        """End a request that nobody stands in the way of, but that needs more blocks than the pool can give.

        It got as far as it could, like one that reaches its length limit; with nothing to show it is an error.
        """
        reason: FinishReason = "length" if request.output_token_ids else "error"
        self.finish(request, reason)
        self.stats.pool_exhausted += 1
        return reason

    def count_computed(self, request: Request, start: int, stop: int) -> None:
        """Account for the computed positions [start, stop)."""
        first_new = start
        if self.lost_until:
            first_new = min(max(start, self.lost_until.get(request.request_id, 0)), stop)
        num_prompt = len(request.prompt_token_ids)
        prompt = max(min(stop, num_prompt) - first_new, 0)
        self.stats.recomputed_tokens += first_new - start
        self.stats.prompt_computed_tokens += prompt
        self.stats.output_computed_tokens += stop - first_new - prompt
