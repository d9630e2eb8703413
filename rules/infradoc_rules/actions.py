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
    ActionSpec(
        "raise_kv_capacity", "kv_pool_tokens", "increase", "reversible", "grow the KV pool", "lower_kv_capacity"
    ),
    ActionSpec(
        "lower_kv_capacity", "kv_pool_tokens", "decrease", "reversible", "shrink the KV pool", "raise_kv_capacity"
    ),
    ActionSpec(
        "raise_gpu_memory_utilization",
        "gpu_memory_utilization",
        "increase",
        "disruptive",
        "give the engine a larger share of device memory",
        "lower_gpu_memory_utilization",
    ),
    ActionSpec(
        "lower_gpu_memory_utilization",
        "gpu_memory_utilization",
        "decrease",
        "disruptive",
        "leave more of the device above the KV pool",
        "raise_gpu_memory_utilization",
    ),
    ActionSpec(
        "lower_block_size",
        "block_size",
        "decrease",
        "disruptive",
        "waste less of each request's last block",
    ),
    ActionSpec(
        "recompute_instead_of_swap", "preemption_mode", "set", "reversible", "drop blocks instead of moving them"
    ),
    ActionSpec("defragment_kv", "defragment", "enable", "reversible", "give leaked blocks back and compact the pool"),
    ActionSpec(
        "set_expandable_segments", "pytorch_alloc_conf", "set", "disruptive", "let the allocator grow its segments"
    ),
    ActionSpec("stop_other_process", "other_process", "disable", "disruptive", "move another program off the device"),
    ActionSpec("raise_host_ram", "host_ram", "increase", "disruptive", "give the host or the container more memory"),
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
    ActionSpec(
        "raise_max_model_len",
        "max_model_len",
        "increase",
        "disruptive",
        "accept longer requests",
        "lower_max_model_len",
    ),
    ActionSpec(
        "lower_max_model_len",
        "max_model_len",
        "decrease",
        "disruptive",
        "set aside less for each request",
        "raise_max_model_len",
    ),
    ActionSpec("raise_max_input_tokens", "max_input_tokens", "increase", "disruptive", "accept longer prompts"),
    ActionSpec(
        "raise_max_num_batched_tokens",
        "max_num_batched_tokens",
        "increase",
        "disruptive",
        "let one step take a longer prompt",
        "lower_max_num_batched_tokens",
    ),
    ActionSpec(
        "lower_max_num_batched_tokens",
        "max_num_batched_tokens",
        "decrease",
        "reversible",
        "let one step take less of a prompt",
        "raise_max_num_batched_tokens",
    ),
    ActionSpec(
        "lower_client_max_tokens",
        "client_max_tokens",
        "decrease",
        "read_only",
        "clients ask for fewer output tokens",
        "raise_client_max_tokens",
    ),
    ActionSpec(
        "raise_client_max_tokens",
        "client_max_tokens",
        "increase",
        "read_only",
        "clients allow longer answers",
        "lower_client_max_tokens",
    ),
    ActionSpec(
        "shorten_client_prompts", "client_prompt_tokens", "decrease", "read_only", "clients send shorter prompts"
    ),
    ActionSpec("lower_request_rate", "request_rate", "decrease", "read_only", "clients send fewer requests a second"),
    ActionSpec("add_replicas", "replicas", "increase", "disruptive", "serve from more copies"),
    ActionSpec(
        "limit_queue", "max_queued_requests", "set", "reversible", "refuse early instead of queueing without bound"
    ),
    ActionSpec(
        "enable_chunked_prefill", "chunked_prefill", "enable", "reversible", "split long prompts over several steps"
    ),
    ActionSpec(
        "enable_prefix_caching", "prefix_caching", "enable", "reversible", "reuse the KV blocks of shared prefixes"
    ),
    ActionSpec(
        "extend_shared_prefix",
        "client_shared_prefix_tokens",
        "increase",
        "read_only",
        "clients put what their prompts share in front",
    ),
    ActionSpec("use_cuda_graphs", "enforce_eager", "disable", "disruptive", "replay decode steps as CUDA graphs"),
    ActionSpec(
        "raise_cuda_graph_max_bs", "cuda_graph_max_bs", "increase", "disruptive", "capture graphs of larger batches"
    ),
    ActionSpec("raise_cpu_limit", "cpu_limit", "increase", "disruptive", "give the server more cores"),
    ActionSpec(
        "set_omp_num_threads", "omp_num_threads", "set", "disruptive", "as many compute threads as there are cores"
    ),
    ActionSpec(
        "move_cpu_neighbours", "other_process", "disable", "disruptive", "move other programs off the server's cores"
    ),
    ActionSpec(
        "raise_stream_interval", "stream_interval", "increase", "reversible", "send several tokens in one stream event"
    ),
    ActionSpec(
        "raise_client_concurrency",
        "client_concurrency",
        "increase",
        "read_only",
        "clients keep more requests in flight",
    ),
    ActionSpec("fix_gpu_cooling", "gpu_cooling", "fix", "reversible", "repair fans, airflow or inlet temperature"),
    ActionSpec("raise_gpu_power_limit", "gpu_power_limit", "increase", "reversible", "let the device draw more power"),
    ActionSpec("service_gpu", "gpu_device", "fix", "disruptive", "drain, then reset, repair or replace the device"),
    ActionSpec("restart_engine", "engine_restart", "enable", "disruptive", "restart the server"),
)


def opposite(action: str) -> str | None:
    """The action that undoes `action` by design, which two rules must never advise at once."""
    return ACTIONS[action].opposes
