"""One step while it is being decided: what is scheduled so far and what is left of the token budget."""

from __future__ import annotations

from dataclasses import dataclass, field

from infradoc_engine.core.request import FinishReason, Preemption, Request
from infradoc_engine.core.scheduler.output import ScheduledRequest, ScheduleOutput


@dataclass(slots=True)
class StepDraft:
    """Filled by decode and prefill in turn. `requests` runs parallel to `scheduled`."""

    number: int
    budget: int  # tokens that may still be scheduled
    block_size: int
    swap: bool = False  # victims of this step go to host memory while it has room
    scheduled: list[ScheduledRequest] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    block_copies: list[tuple[int, int]] = field(default_factory=list)
    swap_out: list[tuple[int, int]] = field(default_factory=list)
    swap_in: list[tuple[int, int]] = field(default_factory=list)
    copied: list[Request] = field(default_factory=list)  # have a block that a copy or swap-in of this step writes
    swapped_out: list[Request] = field(default_factory=list)
    preempted: list[tuple[str, Preemption]] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)
    admitted: list[str] = field(default_factory=list)
    finished: list[tuple[str, FinishReason]] = field(default_factory=list)
    ran_out: bool = False  # a running request had to take blocks from another one

    def add_decode(self, request: Request) -> None:
        """Compute the newest token of `request`, which has a place for it, and sample the next."""
        self._add(request, [request.output_token_ids[-1]], request.num_computed_tokens, samples=True, is_prefill=False)

    def add_prefill(self, request: Request, num_tokens: int) -> None:
        """Compute the next `num_tokens` known tokens of `request`."""
        start = request.num_computed_tokens
        tokens = request.tokens(start, start + num_tokens)
        self._add(request, tokens, start, samples=start + num_tokens == request.num_tokens, is_prefill=True)

    def _add(self, request: Request, token_ids: list[int], start: int, *, samples: bool, is_prefill: bool) -> None:
        num_blocks = -(-(start + len(token_ids)) // self.block_size)
        table = request.block_table[:num_blocks]
        self.scheduled.append(ScheduledRequest(request.request_id, token_ids, start, table, samples, is_prefill))
        self.requests.append(request)
        self.budget -= len(token_ids)

    def output(self) -> ScheduleOutput:
        """The step as the model runner sees it."""
        return ScheduleOutput(
            step=self.number,
            scheduled=self.scheduled,
            block_copies=self.block_copies,
            swap_out=self.swap_out,
            swap_in=self.swap_in,
            preempted=self.preempted,
            resumed=self.resumed,
            admitted=self.admitted,
            finished=self.finished,
        )
