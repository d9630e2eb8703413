"""The knobs of the scheduler; each may change between two steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from infradoc_engine.core.request import PreemptionMode


@dataclass(slots=True)
class SchedulerLimits:
    """Read anew at each `schedule()`; after an edit in place, `validate()` says whether the values make sense.

    max_num_seqs: requests running at once; lowered below the number running, nothing is admitted until enough finish.
    max_num_batched_tokens: tokens computed in one step, decodes first.
    watermark: share of the blocks that admission leaves for requests that run already.
    max_model_len: prompt and output tokens of one request.
    chunked_prefill: off, a prompt is computed in one step unless it is longer than max_num_batched_tokens.
    preemption_mode: swap, a request that loses its blocks to another one keeps their content in host memory, if there
    is room for it; else, and in recompute, its tokens are computed again.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    watermark: float = 0.0
    max_model_len: int = 2048
    chunked_prefill: bool = True
    prefix_caching: bool = True
    preemption_mode: PreemptionMode = "recompute"

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Raise ValueError for values with which nothing could run. max_num_seqs 0 is allowed: it drains."""
        if self.max_num_seqs < 0:
            raise ValueError(f"max_num_seqs must not be negative, but is {self.max_num_seqs}")
        if self.max_num_batched_tokens < 1:
            raise ValueError(f"max_num_batched_tokens must be at least 1, but is {self.max_num_batched_tokens}")
        if not 0.0 <= self.watermark < 1.0:
            raise ValueError(f"watermark must be at least 0 and below 1, but is {self.watermark}")
        if self.max_model_len < 2:
            raise ValueError(f"max_model_len must have room for a prompt and an output token, not {self.max_model_len}")
        if self.preemption_mode not in get_args(PreemptionMode):
            raise ValueError(f"preemption_mode must be recompute or swap, not {self.preemption_mode}")
