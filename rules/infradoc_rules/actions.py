"""The closed list of actions: what a rule may advise, a playbook may name and remediation may carry out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infradoc_rules.model import Change, Risk


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """One kind of change. `opposes` is the action that would push the same knob back."""

    name: str
    knob: str
    change: Change
    risk: Risk
    means: str
    opposes: str | None = None


def _table(*specs: ActionSpec) -> Mapping[str, ActionSpec]:
    return {spec.name: spec for spec in specs}


ACTIONS: Mapping[str, ActionSpec] = _table(
    ActionSpec("raise_kv_capacity", "kv_pool_tokens", "increase", "reversible", "grow the KV pool"),
    ActionSpec(
        "raise_gpu_memory_utilization",
        "gpu_memory_utilization",
        "increase",
        "disruptive",
        "give the engine a larger share of device memory",
    ),
    ActionSpec(
        "lower_max_num_seqs",
        "max_num_seqs",
        "decrease",
        "reversible",
        "admit fewer requests at once",
        "raise_max_num_seqs",
    ),
    ActionSpec(
        "raise_max_num_seqs",
        "max_num_seqs",
        "increase",
        "reversible",
        "admit more requests at once",
        "lower_max_num_seqs",
    ),
    ActionSpec(
        "set_tokenizer_workers", "tokenizer_workers", "increase", "reversible", "tokenize beside the event loop"
    ),
    ActionSpec("raise_api_server_count", "api_server_count", "increase", "disruptive", "run more front-end processes"),
    ActionSpec("reject_long_prompts", "truncation_policy", "set", "reversible", "refuse prompts that do not fit"),
    ActionSpec(
        "disable_context_shift", "context_shift", "disable", "disruptive", "fail instead of dropping old tokens"
    ),
    ActionSpec("raise_max_model_len", "max_model_len", "increase", "disruptive", "accept longer requests"),
    ActionSpec("raise_max_input_tokens", "max_input_tokens", "increase", "disruptive", "accept longer prompts"),
    ActionSpec(
        "raise_max_num_batched_tokens",
        "max_num_batched_tokens",
        "increase",
        "disruptive",
        "let one step take a longer prompt",
    ),
    ActionSpec(
        "lower_client_max_tokens", "client_max_tokens", "decrease", "read_only", "clients ask for fewer output tokens"
    ),
    ActionSpec(
        "shorten_client_prompts", "client_prompt_tokens", "decrease", "read_only", "clients send shorter prompts"
    ),
    ActionSpec("lower_request_rate", "request_rate", "decrease", "read_only", "clients send fewer requests a second"),
    ActionSpec("add_replicas", "replicas", "increase", "disruptive", "serve from more copies"),
    ActionSpec(
        "limit_queue", "max_queued_requests", "set", "reversible", "refuse early instead of queueing without bound"
    ),
    ActionSpec("restart_engine", "engine_restart", "enable", "disruptive", "restart the server"),
)


def opposite(action: str) -> str | None:
    """The action that undoes `action` by design, which two rules must never advise at once."""
    return ACTIONS[action].opposes
