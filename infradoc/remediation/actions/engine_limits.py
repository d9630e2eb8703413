"""Actions on what the scheduler admits, and on how it computes it."""

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
    LiveAction(
        "lower_max_num_batched_tokens",
        "max_num_batched_tokens",
        loser="long prompts: their first token comes later",
    ),
    LiveAction(
        "lower_max_model_len",
        "max_model_len",
        loser="callers with longer requests than seen so far: they are refused",
        drains=True,
    ),
    LiveAction(
        "raise_max_model_len",
        "max_model_len",
        loser="short requests: long ones take more of the KV pool and of each step",
        drains=True,
    ),
    LiveAction("enable_chunked_prefill", "chunked_prefill", loser="long prompts: their first token comes later"),
    LiveAction(
        "enable_prefix_caching",
        "prefix_caching",
        loser="strict isolation of tenants: what others sent shows in the time to first token",
    ),
    LiveAction("use_cuda_graphs", "enforce_eager", loser="the KV pool: graphs take device memory"),
)
