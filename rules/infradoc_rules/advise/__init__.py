"""Typed sizing functions: (frame, facts) -> a change with number, cost and loser."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from infradoc_rules.advise import (
    batch,
    blocks,
    cpu,
    frontend,
    graphs,
    hardware,
    health,
    kv,
    length,
    load,
    memory,
    output,
    prefill,
    prefix,
)
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
    "fit_length_limit": length.fit_length_limit,
    "disable_context_shift": length.disable_context_shift,
    "raise_length_limit": length.raise_length_limit,
    "lower_client_max_tokens": length.lower_client_max_tokens,
    "shorten_client_prompts": length.shorten_client_prompts,
    "lower_request_rate": load.lower_request_rate,
    "add_replicas": load.add_replicas,
    "limit_queue": load.limit_queue,
    "restart_engine": health.restart_engine,
    "fix_gpu_cooling": hardware.fix_gpu_cooling,
    "raise_gpu_power_limit": hardware.raise_gpu_power_limit,
    "service_gpu": hardware.service_gpu,
    "lower_gpu_memory_utilization": memory.lower_gpu_memory_utilization,
    "lower_kv_capacity": memory.lower_kv_capacity,
    "fit_step_to_memory": memory.fit_step_to_memory,
    "set_expandable_segments": memory.set_expandable_segments,
    "stop_other_process": memory.stop_other_process,
    "raise_host_ram": memory.raise_host_ram,
    "restart_to_free": memory.restart_to_free,
    "lower_block_size": blocks.lower_block_size,
    "defragment_kv": blocks.defragment_kv,
    "raise_kv_capacity_for_swap": blocks.raise_kv_capacity_for_swap,
    "lower_max_num_seqs_for_swap": blocks.lower_max_num_seqs_for_swap,
    "recompute_instead_of_swap": blocks.recompute_instead_of_swap,
    "lower_max_model_len": length.lower_max_model_len,
    "raise_client_concurrency": batch.raise_client_concurrency,
    "set_omp_num_threads": cpu.set_omp_num_threads,
    "raise_cpu_limit": cpu.raise_cpu_limit,
    "move_cpu_neighbours": cpu.move_cpu_neighbours,
    "raise_stream_interval": frontend.raise_stream_interval,
    "set_detokenizer_workers": frontend.set_detokenizer_workers,
    "use_cuda_graphs": graphs.use_cuda_graphs,
    "raise_cuda_graph_max_bs": graphs.raise_cuda_graph_max_bs,
    "raise_client_max_tokens": output.raise_client_max_tokens,
    "enable_chunked_prefill": prefill.enable_chunked_prefill,
    "lower_max_num_batched_tokens": prefill.lower_max_num_batched_tokens,
    "enable_prefix_caching": prefix.enable_prefix_caching,
    "hold_prefixes": prefix.hold_prefixes,
    "extend_shared_prefix": prefix.extend_shared_prefix,
}


def actions_for(names: Iterable[str], advice: Advice) -> list[Action]:
    """The actions of the named sizing functions, in the order of the rule: best first."""
    found = (ADVISERS[name](advice) for name in names)
    return [action for action in found if action is not None]


__all__ = ["ADVISERS", "Advice", "actions_for"]
