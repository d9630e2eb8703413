"""Continuous batching: what each step computes, and what its sampled tokens mean for the requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infradoc_engine.core.clock import Clock, MonotonicClock
from infradoc_engine.core.errors import BlocksLeaked, RequestTooLong
from infradoc_engine.core.kv_cache_manager import KVCacheManager, leak_text
from infradoc_engine.core.request import FinishReason, PreemptReason, Request
from infradoc_engine.core.scheduler.decode import DecodeStage, is_decode
from infradoc_engine.core.scheduler.lifecycle import Lifecycle
from infradoc_engine.core.scheduler.limits import SchedulerLimits
from infradoc_engine.core.scheduler.output import ScheduledRequest, ScheduleOutput, StepUpdate
from infradoc_engine.core.scheduler.prefill import PrefillStage
from infradoc_engine.core.scheduler.stats import SchedulerStats
from infradoc_engine.core.scheduler.step import StepDraft


class Scheduler:
    """Orders the stages of a step: decodes, then prefills, within one token budget. Not thread-safe.

    The loop is `schedule()`, compute, `update()`. A step whose `update` never came was lost (the runner failed): say so
    with `abandon_step()`, or leave it to the next `schedule()`; the same tokens are asked for again. What copies of a
    lost step would have written is not trusted: a swap-out becomes a recompute, a swap-in is made again from the host
    copy, which is kept until `update`. `abort`, `finish`, `preempt`, changes of `limits` and growth of the pool are
    allowed at any moment in between.
    """

    def __init__(self, limits: SchedulerLimits, cache: KVCacheManager, clock: Clock | None = None) -> None:
        self.limits = limits
        self.cache = cache
        self._lifecycle = Lifecycle(cache, clock or MonotonicClock())
        self._decode = DecodeStage(self._lifecycle)
        self._prefill = PrefillStage(self._lifecycle)
        self._step = 0
        self._pending: tuple[StepDraft, ScheduleOutput] | None = None
        self._paused = False

    # --- requests in and out ---

    def add(self, request: Request) -> None:
        """Queue a new request; nothing changes when it raises.

        Raises RequestTooLong, BlocksLeaked when it would fit if no block was leaked, ValueError if it makes no sense.
        """
        self._check(request)
        self._lifecycle.enqueue(request)

    def _check(self, request: Request) -> None:
        num_prompt = len(request.prompt_token_ids)
        if request.request_id in self._lifecycle.requests:
            raise ValueError(f"request id {request.request_id} is in use")
        if request.state != "waiting" or request.block_table or request.output_token_ids:
            raise ValueError(f"request {request.request_id} was scheduled before; make a new one")
        if not num_prompt or request.max_tokens < 1:
            raise ValueError("a request needs at least one prompt token and max_tokens of at least 1")
        for limit, where in (
            (self.limits.max_model_len, "max_model_len"),
            (self.cache.num_blocks * self.cache.block_size, "the KV pool"),
        ):
            if num_prompt + 1 > limit:
                raise RequestTooLong(
                    f"the prompt has {num_prompt} tokens, but {where} has room for {limit - 1} and one output token",
                    prompt_tokens=num_prompt,
                    limit_tokens=limit - 1,
                )
        if num_prompt + 1 > self.cache.usable_tokens:
            raise BlocksLeaked(leak_text(self.cache))

    def abort(self, request_id: str) -> bool:
        """End a request whose client is gone; its blocks are free at once. False when the id is unknown."""
        return self.finish(request_id, "abort")

    def finish(self, request_id: str, reason: FinishReason) -> bool:
        """End a request for a reason found outside, such as a stop string. False when the id is unknown."""
        request = self._lifecycle.requests.get(request_id)
        if request is None:
            return False
        self._lifecycle.finish(request, reason)
        return True

    def preempt(self, request_id: str, reason: PreemptReason = "fault") -> bool:
        """Take the blocks of a running request from outside; it waits at the head. False when it does not run."""
        request = self._lifecycle.running.get(request_id)
        if request is None:
            return False
        self._lifecycle.unreported.append((request_id, self._lifecycle.preempt(request, reason, request_id)))
        return True

    def preempt_all(self, reason: PreemptReason = "resize") -> int:
        """Take the blocks of all running requests; they wait at the head in their order. How many they were."""
        running = list(self._lifecycle.running)
        for request_id in reversed(running):
            self.preempt(request_id, reason)
        return len(running)

    # --- changes from outside, between two steps ---

    @property
    def paused(self) -> bool:
        """Whether admission is stopped."""
        return self._paused

    def pause(self) -> None:
        """Admit nothing, preempted requests included, until `resume`; those that run go on, new ones may queue."""
        self._paused = True

    def resume(self) -> None:
        """Admit again."""
        self._paused = False

    def replace_cache(self, cache: KVCacheManager) -> None:
        """Go on with another, fresh cache of any size. Waiting requests stay queued, swapped ones must recompute.

        Raises ValueError while requests run (`preempt_all` first), StepUnderWay between `schedule` and its end.
        """
        self.cache.swaps.require_no_step("replacing the cache")
        if self._lifecycle.running:
            raise ValueError(f"{self.num_running} requests still have blocks in the cache that is to be replaced")
        for request in self._lifecycle.swapped():
            self._lifecycle.lose_swap(request)
        self.cache = self._lifecycle.cache = cache

    def set_host_blocks(self, num_blocks: int) -> int:
        """Change the host pool; swapped requests with blocks beyond must recompute. How many they were.

        Raises as `KVCacheManager.set_host_blocks`, except that no swapped request stands in the way.
        """
        self.cache.swaps.require_no_step("changing the host pool")
        beyond = set(self.cache.swaps.pool.owners_beyond(num_blocks)) if num_blocks >= 0 else set()
        for request_id in beyond:
            self._lifecycle.lose_swap(self._lifecycle.requests[request_id])
        self.cache.set_host_blocks(num_blocks)
        return len(beyond)

    # --- the step ---

    def schedule(self) -> ScheduleOutput:
        """Decide one step; O(running requests). `.scheduled` is empty when nothing can be computed."""
        self.abandon_step()
        self.cache.watermark = self.limits.watermark
        if self.cache.prefix_caching != self.limits.prefix_caching:
            self.cache.prefix_caching = self.limits.prefix_caching
        self._step += 1
        swap = self.limits.preemption_mode == "swap"
        step = StepDraft(self._step, self.limits.max_num_batched_tokens, self.cache.block_size, swap)
        step.preempted = self._lifecycle.take_unreported()
        decodes: list[Request] = []
        prefills: list[Request] = []
        for request in self._lifecycle.running.values():
            (decodes if is_decode(request) else prefills).append(request)
        self._decode.run(step, decodes)
        self._prefill.run(step, prefills, self.limits, paused=self._paused)
        output = step.output()
        self._pending = (step, output)
        if step.scheduled or step.swap_out:  # `output.needs_runner`, without the call: this is the hot path
            self.cache.swaps.begin_step()
        return output

    def abandon_step(self) -> None:
        """No `update` will come for the step last scheduled: the runner failed. Nothing happens when there is none.

        Its tokens are simply asked for again. Copies are not: their destinations hold rubbish, so whoever has one of
        those waits again, with its host copy if it was being swapped in, and whoever was swapped out has lost it.
        """
        if self._pending is None:
            return
        step, _ = self._pending
        self._pending = None
        for request in reversed(step.copied):  # the last admitted first: each goes to the head
            if request.state == "running":
                self.preempt(request.request_id, "fault")
        for request in step.swapped_out:
            if request.state == "waiting":
                self._lifecycle.lose_swap(request)
        self.cache.swaps.end_step()

    def update(self, output: ScheduleOutput, sampled: Mapping[str, int]) -> StepUpdate:
        """Take in the result of a step: `sampled` has a token for each scheduled request with `.samples`.

        Requests that were aborted, finished or preempted since `schedule()` are passed over. Raises ValueError, before
        any change, when `output` is not the step last scheduled or a token is missing.
        """
        if self._pending is None or self._pending[1] is not output:
            raise ValueError(f"step {output.step} is not the one that was scheduled last, or was updated already")
        alive = [
            pair for pair in zip(self._pending[0].requests, output.scheduled, strict=True) if self._is_alive(*pair)
        ]
        missing = [item.request_id for _, item in alive if item.samples and item.request_id not in sampled]
        if missing:
            raise ValueError(f"step {output.step} has no sampled token for request {missing[0]}")
        step, self._pending = self._pending[0], None
        if step.copied or step.swapped_out:
            self._confirm_swaps(step)
        self.cache.swaps.end_step()
        if output.scheduled:
            self._lifecycle.stats.steps += 1
        tokens: list[tuple[str, int, FinishReason | None]] = []
        for request, item in alive:
            self._advance(request, item)
            if item.samples:
                token = sampled[item.request_id]
                tokens.append((item.request_id, token, self._take(request, token)))
        return StepUpdate(tokens)

    def _confirm_swaps(self, step: StepDraft) -> None:
        stats = self._lifecycle.stats
        stats.swapped_out_blocks += len(step.swap_out)
        stats.swapped_out_requests += len(step.swapped_out)
        stats.swapped_in_blocks += len(step.swap_in)
        for request in step.copied:
            if request.state == "running" and self.cache.confirm_swap_in(request):
                stats.swapped_in_requests += 1

    @staticmethod
    def _is_alive(request: Request, item: ScheduledRequest) -> bool:
        return request.state == "running" and request.num_computed_tokens == item.start

    def _advance(self, request: Request, item: ScheduledRequest) -> None:
        stop = item.start + len(item.token_ids)
        request.num_computed_tokens = stop
        self.cache.commit(request, item.start, stop)
        self._lifecycle.count_computed(request, item.start, stop)

    def _take(self, request: Request, token: int) -> FinishReason | None:
        request.output_token_ids.append(token)
        self._lifecycle.stats.generation_tokens += 1
        reason = self._stop_reason(request, token)
        if reason is not None:
            self._lifecycle.finish(request, reason)
        return reason

    def _stop_reason(self, request: Request, token: int) -> FinishReason | None:
        num_output, num_tokens = len(request.output_token_ids), request.num_tokens
        if token in request.stop_token_ids and not request.ignore_eos and num_output >= request.min_tokens:
            return "stop"
        if num_output >= request.max_tokens or num_tokens >= self.limits.max_model_len:
            return "length"
        if num_tokens > self.cache.usable_tokens:  # even alone it could not have all its KV in the pool at once
            self._lifecycle.stats.pool_exhausted += 1
            return "length"
        return None

    # --- views ---

    @property
    def stats(self) -> SchedulerStats:
        """Counters since the start."""
        return self._lifecycle.stats

    @property
    def running(self) -> Sequence[Request]:
        """Running requests in order of admission; a copy."""
        return list(self._lifecycle.running.values())

    @property
    def waiting(self) -> Sequence[Request]:
        """Waiting requests, the head first; a copy."""
        return self._lifecycle.waiting.snapshot()

    @property
    def num_running(self) -> int:
        """Requests that hold blocks."""
        return len(self._lifecycle.running)

    @property
    def num_waiting(self) -> int:
        """Requests in the queue, preempted ones included."""
        return len(self._lifecycle.waiting)

    @property
    def num_swapped(self) -> int:
        """Of the waiting requests, those whose KV is in host memory."""
        return self.cache.swaps.num_swapped

    def has_work(self) -> bool:
        """Whether any request is not finished."""
        return bool(self._lifecycle.requests)

    def get(self, request_id: str) -> Request | None:
        """The request, or None once it is finished."""
        return self._lifecycle.requests.get(request_id)
