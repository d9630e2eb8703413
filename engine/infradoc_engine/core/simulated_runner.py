"""The what-if simulator: the real scheduler and block pool, with step times from a cost model instead of a model.

Costs are measured elsewhere and handed in; tokens are made up, but the same for the same seed, request and position.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from infradoc_engine.core.clock import VirtualClock
from infradoc_engine.core.request import FinishReason, Request
from infradoc_engine.core.scheduler.output import ScheduleOutput, StepUpdate
from infradoc_engine.core.scheduler.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Seconds per unit of work in one step; all are added. Fit them to timed steps of the system in question."""

    step: float  # whatever the step does
    prefill_token: float  # per prompt token computed
    decode_row: float  # per request that decodes
    decode_context_token: float = 0.0  # per token of KV that a decode reads
    prefill_context_token: float = 0.0  # per (prompt token, token of KV before it) pair
    block_copy: float = 0.0
    kv_block_bytes: int = 0  # KV of one block, all layers; with swap_bandwidth the cost of a swap
    swap_bandwidth: float = float("inf")  # bytes per second between device and host, either way

    def seconds(self, output: ScheduleOutput) -> float:
        """Duration of one step."""
        total = self.step + self.block_copy * len(output.block_copies)
        total += (len(output.swap_out) + len(output.swap_in)) * self.kv_block_bytes / self.swap_bandwidth
        for item in output.scheduled:
            n = len(item.token_ids)
            if item.is_prefill:
                pairs = n * item.start + n * (n + 1) // 2
                total += self.prefill_token * n + self.prefill_context_token * pairs
            else:
                total += self.decode_row * n + self.decode_context_token * (item.start + 1)
        return total


class SimulatedRunner:
    """Stands where the model runner stands: takes a ScheduleOutput, lets the time pass, gives tokens."""

    def __init__(self, costs: StepCosts, clock: VirtualClock, *, seed: int = 0, vocab_size: int = 32_000) -> None:
        self._costs = costs
        self._clock = clock
        self._key = seed.to_bytes(8, "little", signed=True)
        self._vocab_size = vocab_size

    def execute(self, output: ScheduleOutput) -> dict[str, int]:
        """Advance the clock by the cost of the step; a token for each scheduled request that samples."""
        self._clock.advance(self._costs.seconds(output))
        return {
            item.request_id: self._token(item.request_id, item.start + len(item.token_ids))
            for item in output.scheduled
            if item.samples
        }

    def _token(self, request_id: str, position: int) -> int:
        # Depends on the place in the request alone: another schedule of the same load must give the same tokens.
        digest = hashlib.blake2b(f"{request_id} {position}".encode(), digest_size=8, key=self._key).digest()
        return int.from_bytes(digest, "little") % self._vocab_size


@dataclass(slots=True)
class RequestTimes:
    """What a client would have seen of one request; times on the virtual clock, in seconds."""

    request: Request
    token_times: list[float] = field(default_factory=list)
    finish_time: float | None = None
    finish_reason: FinishReason | None = None

    @property
    def ttft(self) -> float | None:
        """Arrival to first token; None when there was no token."""
        return self.token_times[0] - self.request.arrival_time if self.token_times else None

    @property
    def itl(self) -> list[float]:
        """Gaps between tokens."""
        return [b - a for a, b in zip(self.token_times, self.token_times[1:], strict=False)]

    @property
    def e2e(self) -> float | None:
        """Arrival to the end; None while it runs."""
        return None if self.finish_time is None else self.finish_time - self.request.arrival_time


FollowUp = Callable[[RequestTimes], Iterable[Request]]


class Simulation:
    """Plays requests against a scheduler on the virtual clock that both share with the runner."""

    def __init__(self, scheduler: Scheduler, runner: SimulatedRunner, clock: VirtualClock) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._clock = clock
        self._arrivals: list[tuple[float, int, Request]] = []  # heap; the number keeps equal times in order
        self._num_offered = 0
        self._times: dict[str, RequestTimes] = {}
        self._open: dict[str, RequestTimes] = {}

    def run(
        self, requests: Iterable[Request], *, follow_up: FollowUp | None = None, until: float = float("inf")
    ) -> list[RequestTimes]:
        """Take in each request at its `arrival_time` and step until all are finished or the clock reaches `until`.

        `follow_up` is told of each finished request and may return the next ones: a closed loop of clients. Result in
        order of arrival. A request that the scheduler refuses raises as `Scheduler.add` does.
        """
        self._offer(requests)
        while self._clock.now() < until and (self._arrivals or self._scheduler.has_work()):
            self._take_in()
            if not self._scheduler.has_work():
                self._clock.advance_to(min(self._arrivals[0][0], until))
                continue
            for times in self._step():
                if follow_up is not None:
                    self._offer(follow_up(times))
        return list(self._times.values())

    def _offer(self, requests: Iterable[Request]) -> None:
        for request in requests:
            heappush(self._arrivals, (request.arrival_time, self._num_offered, request))
            self._num_offered += 1

    def _take_in(self) -> None:
        while self._arrivals and self._arrivals[0][0] <= self._clock.now():
            request = heappop(self._arrivals)[2]
            self._scheduler.add(request)
            self._times[request.request_id] = self._open[request.request_id] = RequestTimes(request)

    def _step(self) -> list[RequestTimes]:
        output = self._scheduler.schedule()
        if not output.needs_runner and not output.preempted and not output.finished:
            raise RuntimeError("nothing can be scheduled while requests wait: paused, or max_num_seqs is 0")
        update = self._scheduler.update(output, self._runner.execute(output))
        return self._record(output, update)

    def _record(self, output: ScheduleOutput, update: StepUpdate) -> list[RequestTimes]:
        now = self._clock.now()
        ended: list[RequestTimes] = []
        for request_id, _, reason in update.tokens:
            times = self._open[request_id]
            times.token_times.append(now)
            if reason is not None:
                ended.append(self._end(request_id, reason))
        ended.extend(self._end(request_id, reason) for request_id, reason in output.finished)
        return ended

    def _end(self, request_id: str, reason: FinishReason) -> RequestTimes:
        times = self._open.pop(request_id)
        times.finish_time = self._clock.now()
        times.finish_reason = reason
        return times
