"""What one scheduling decision says: all that the model runner sees of the scheduler."""

from __future__ import annotations

from dataclasses import dataclass, field

from infradoc_engine.core.request import FinishReason, Preemption


@dataclass(frozen=True, slots=True)
class ScheduledRequest:
    """Tokens of one request to compute in this step.

    `token_ids` sit at positions [start, start + len(token_ids)); their KV goes to
    block_table[position // block_size], offset position % block_size. `samples` is true when the last of them is the
    request's newest known token, so that a next token is to be sampled from its logits. A decode has one token.
    """

    request_id: str
    token_ids: list[int]
    start: int
    block_table: list[int]  # a snapshot; block ids, one per block_size positions
    samples: bool
    is_prefill: bool


@dataclass(frozen=True, slots=True)
class ScheduleOutput:
    """One step. The runner performs `swap_out`, then `block_copies`, then `swap_in`, then computes: in this order.

    swap_out: (device block, host block). The device block may have a new owner in this step already, who writes it
    only after the swap. swap_in: (host block, device block). A step has one of the two at most.
    block_copies: copy-on-write (source, destination), before any KV write. A source may be written later in the step
    or be a later destination: copy in list order, or read all first.
    """

    step: int
    scheduled: list[ScheduledRequest]
    block_copies: list[tuple[int, int]] = field(default_factory=list)
    swap_out: list[tuple[int, int]] = field(default_factory=list)
    swap_in: list[tuple[int, int]] = field(default_factory=list)
    preempted: list[tuple[str, Preemption]] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)  # preempted earlier, running again from this step
    admitted: list[str] = field(default_factory=list)  # running for the first time from this step
    finished: list[tuple[str, FinishReason]] = field(default_factory=list)  # ended: the pool can never hold them

    @property
    def needs_runner(self) -> bool:
        """Whether there is anything to compute or copy. A swap can come without tokens; left out, it is lost."""
        return bool(self.scheduled or self.swap_out or self.swap_in or self.block_copies)

    @property
    def num_prefill_tokens(self) -> int:
        return sum(len(s.token_ids) for s in self.scheduled if s.is_prefill)

    @property
    def num_decode_tokens(self) -> int:
        return sum(len(s.token_ids) for s in self.scheduled if not s.is_prefill)


@dataclass(frozen=True, slots=True)
class StepUpdate:
    """What `Scheduler.update` did with the sampled tokens: (request id, token, finish reason or None) in order."""

    tokens: list[tuple[str, int, FinishReason | None]]
