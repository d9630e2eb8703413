"""From measured lengths to a max_model_len, with what it costs and what it gives."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from infradoc.lengths.measured import Measured
from infradoc_rules.knobs import knob_table
from infradoc_rules.versions import Running

DEFAULT_BLOCK = 16


@dataclass(frozen=True, slots=True)
class Limits:
    """What is known of the server. `pool_tokens` is the KV pool, `running` its version; None means not known."""

    system: str | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    pool_tokens: int | None = None
    block_size: int | None = None
    running: Running | None = None

    def with_length(self, tokens: int | None) -> Limits:
        """The same with a max_model_len that was found elsewhere."""
        return replace(self, max_model_len=tokens)


@dataclass(frozen=True, slots=True)
class Proposal:
    """`tokens` covers the P99 of prompt + output in whole blocks; `above` requests of `n` were longer.

    `concurrency` is how many requests of full length the pool holds at once, before and after.
    """

    tokens: int
    n: int
    above: int | None
    longest: int | None
    exact: bool
    present: int | None
    concurrency_before: float | None
    concurrency_after: float | None
    flag: str | None

    @property
    def change(self) -> str:
        """increase, decrease, keep, or set where the present limit is not known."""
        if self.present is None:
            return "set"
        if self.present == self.tokens:
            return "keep"
        return "increase" if self.tokens > self.present else "decrease"


def propose(measured: Measured, limits: Limits) -> Proposal | None:
    """The P99 of prompt + output, rounded up to whole blocks; None with fewer than 100 requests."""
    p99 = measured.total_quantile(0.99)
    if p99 is None:
        return None
    block = limits.block_size or DEFAULT_BLOCK
    tokens = max(math.ceil(p99 / block - 1e-9) * block, block)
    return Proposal(
        tokens=tokens,
        n=measured.n,
        above=measured.above(tokens),
        longest=measured.longest(),
        exact=measured.exact,
        present=limits.max_model_len,
        concurrency_before=_concurrency(limits, limits.max_model_len),
        concurrency_after=_concurrency(limits, tokens),
        flag=_flag(limits, tokens),
    )


def _flag(limits: Limits, tokens: int) -> str | None:
    """As the engine's version spells it. llama.cpp divides --ctx-size among its slots, so it carries slots x length."""
    if limits.system == "llamacpp" and limits.max_num_seqs:
        return f"--parallel {limits.max_num_seqs} --ctx-size {tokens * limits.max_num_seqs}"
    return knob_table().flag(limits.system, "max_model_len", tokens, limits.running)


def _concurrency(limits: Limits, tokens: int | None) -> float | None:
    """Requests of full length at once: what the pool holds, at most max_num_seqs."""
    if limits.pool_tokens is None or not tokens:
        return None
    block = limits.block_size or DEFAULT_BLOCK
    held = limits.pool_tokens / (math.ceil(tokens / block) * block)
    return min(held, float(limits.max_num_seqs)) if limits.max_num_seqs else held
