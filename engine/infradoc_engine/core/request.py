"""A request as the scheduler sees it: token ids, blocks, progress. No text, no tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

State = Literal["waiting", "running", "finished"]
FinishReason = Literal["stop", "length", "abort", "error"]
PreemptReason = Literal["kv_full", "priority", "resize", "fault"]
PreemptionMode = Literal["recompute", "swap"]


@dataclass(frozen=True, slots=True)
class Preemption:
    """One loss of all blocks. Times are seconds of the engine's monotonic clock."""

    time: float
    reason: PreemptReason
    lost_tokens: int  # computed tokens thrown away, to be computed again unless the prefix cache still has them
    for_request: str  # the request whose growth needed the blocks; may be this one
    mode: PreemptionMode = "recompute"  # swap: what was computed waits in host memory, so nothing is lost


@dataclass(slots=True, eq=False)
class Request:
    """Mutable; owned by the scheduler from `add` to finish.

    `num_computed_tokens` counts tokens whose KV is in blocks of `block_table` (prompt first, then output) or, for one
    that waits after a swap, in host blocks; any other request that waits has none.
    All tokens but the newest sampled one must be computed before the next is sampled.
    """

    request_id: str
    prompt_token_ids: list[int]
    max_tokens: int
    arrival_time: float = 0.0
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    min_tokens: int = 0
    priority: int = 0

    state: State = "waiting"
    output_token_ids: list[int] = field(default_factory=list)
    block_table: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0  # of the prompt, found in the prefix cache at first admission
    finish_reason: FinishReason | None = None
    preemptions: list[Preemption] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens known so far."""
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    def tokens(self, start: int, stop: int) -> list[int]:
        """Token ids at positions [start, stop), over prompt and output as one sequence."""
        num_prompt = len(self.prompt_token_ids)
        if stop <= num_prompt:
            return self.prompt_token_ids[start:stop]
        head = self.prompt_token_ids[start:] if start < num_prompt else []
        return head + self.output_token_ids[max(start - num_prompt, 0) : stop - num_prompt]
