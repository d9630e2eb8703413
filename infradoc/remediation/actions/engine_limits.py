"""Actions on what the scheduler admits."""

from __future__ import annotations

from infradoc.remediation.actions.base import LiveAction, by_name

ENGINE_LIMITS = by_name(
    LiveAction(
        "lower_max_num_seqs",
        "max_num_seqs",
        loser="requests that now wait: longer time to first token and less throughput",
    ),
    LiveAction(
        "raise_max_num_seqs",
        "max_num_seqs",
        loser="each running request: longer gaps between its tokens, and more KV blocks in use",
    ),
    LiveAction(
        "raise_max_num_batched_tokens",
        "max_num_batched_tokens",
        loser="running streams: a longer gap while a long prompt is computed",
    ),
    LiveAction("reject_long_prompts", "truncation_policy", loser="callers with over-long prompts: they get an error"),
    LiveAction(
        "limit_queue", "max_queued_requests", loser="callers beyond the limit: they get 429 and must come again"
    ),
)
