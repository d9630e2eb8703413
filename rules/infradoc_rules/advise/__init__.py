"""Typed sizing functions: (frame, facts) -> a change with number, cost and loser."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from infradoc_rules.advise import batch, frontend, health, kv, length, load
from infradoc_rules.advise.base import Advice
from infradoc_rules.model import Action

# What a rule may name under `advise`. A function gives no action where its change would not help on this target.
ADVISERS: Mapping[str, Callable[[Advice], Action | None]] = {
    "raise_kv_capacity": kv.raise_kv_capacity,
    "raise_gpu_memory_utilization": kv.raise_gpu_memory_utilization,
    "lower_max_num_seqs": kv.lower_max_num_seqs,
    "raise_max_num_seqs": batch.raise_max_num_seqs,
    "set_tokenizer_workers": frontend.set_tokenizer_workers,
    "raise_api_server_count": frontend.raise_api_server_count,
    "reject_long_prompts": length.reject_long_prompts,
    "disable_context_shift": length.disable_context_shift,
    "raise_length_limit": length.raise_length_limit,
    "lower_client_max_tokens": length.lower_client_max_tokens,
    "shorten_client_prompts": length.shorten_client_prompts,
    "lower_request_rate": load.lower_request_rate,
    "add_replicas": load.add_replicas,
    "limit_queue": load.limit_queue,
    "restart_engine": health.restart_engine,
}


def actions_for(names: Iterable[str], advice: Advice) -> list[Action]:
    """The actions of the named sizing functions, in the order of the rule: best first."""
    found = (ADVISERS[name](advice) for name in names)
    return [action for action in found if action is not None]


__all__ = ["ADVISERS", "Advice", "actions_for"]
