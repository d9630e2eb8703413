"""The largest step that the settings allow, and what it needs at most."""

from __future__ import annotations

from dataclasses import dataclass

from infradoc_engine.core.scheduler.output import ScheduledRequest
from infradoc_engine.memory import MIB
from infradoc_engine.weights.config import ModelConfig

RUNTIME_BYTES = 128 * MIB  # stacks, libraries' buffers and heap slack of a process that serves; measured: 60 to 110


@dataclass(frozen=True, slots=True)
class RunnerLimits:
    """What the memory of a step is measured at."""

    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int


def activation_bound(c: ModelConfig, limits: RunnerLimits) -> int:
    """Bytes a step may take, from shapes alone: used before a step can be measured, and where nothing measures.

    Residual and hidden states, the widest projection, the chunk's mask, its context, logits and their copies.
    """
    wide = max(3 * c.intermediate_size, 4 * c.num_heads * c.head_dim)
    values = limits.max_num_batched_tokens * (4 * c.hidden_size + wide)
    mask = 2 * limits.max_num_batched_tokens * limits.max_model_len
    context = 4 * limits.max_model_len * c.num_kv_heads * c.head_dim
    return 4 * (values + mask + context) + 32 * limits.max_num_seqs * c.vocab_size


@dataclass(frozen=True, slots=True)
class StepPeak:
    """The measured peak of a step, and where it was measured: elsewhere it is scaled as the bound from shapes is."""

    config: ModelConfig
    num_bytes: int
    limits: RunnerLimits

    def at(self, limits: RunnerLimits) -> int:
        """Bytes of a step at `limits`."""
        return int(self.num_bytes * activation_bound(self.config, limits) / activation_bound(self.config, self.limits))


def check_limits(limits: RunnerLimits, block_size: int, utilization: float, max_positions: int) -> None:
    """Raises ValueError, one sentence, for a setting outside its range."""
    for name, value in (
        ("max_num_batched_tokens", limits.max_num_batched_tokens),
        ("max_num_seqs", limits.max_num_seqs),
        ("max_model_len", limits.max_model_len),
        ("block_size", block_size),
    ):
        if value < 1:
            raise ValueError(f"{name} is {value}, it must be at least 1")
    if limits.max_model_len > max_positions:
        raise ValueError(
            f"max_model_len is {limits.max_model_len} but the model has {max_positions} positions; "
            f"use at most --max-model-len {max_positions}"
        )
    if not 0.0 < utilization <= 1.0:
        raise ValueError(f"gpu_memory_utilization is {utilization:g}, it must be above 0 and at most 1")


def largest_step(limits: RunnerLimits, block_size: int) -> list[ScheduledRequest]:
    """All sequences sample, one token each, and prefill chunks at the end of a full context take the rest."""
    table = [0] * -(-limits.max_model_len // block_size)  # one block many times: only sizes matter here
    requests: list[ScheduledRequest] = []
    left, last = limits.max_num_batched_tokens, limits.max_model_len
    for index in range(limits.max_num_seqs):
        others = limits.max_num_seqs - index - 1
        count = min(max(left - others, 1), last, left)
        if count < 1:
            break
        left -= count
        requests.append(ScheduledRequest(f"probe-{index}", [0] * count, last - count, table, True, count > 1))
    return requests
