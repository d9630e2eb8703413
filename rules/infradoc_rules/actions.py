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


_IN_CHINESE: Mapping[str, str] = {
    "raise_kv_capacity": "扩大 KV 池",
    "lower_kv_capacity": "缩小 KV 池",
    "raise_gpu_memory_utilization": "让引擎占用更大的显存份额",
    "lower_gpu_memory_utilization": "在 KV 池之上多留显存",
    "lower_block_size": "减少每个请求末块的浪费",
    "recompute_instead_of_swap": "丢弃块而不是搬运块",
    "defragment_kv": "收回泄漏的块并整理池",
    "set_expandable_segments": "让分配器的段可以增长",
    "stop_other_process": "把其他程序移出该设备",
    "raise_host_ram": "给主机或容器更多内存",
    "lower_max_num_seqs": "减少同时接纳的请求",
    "raise_max_num_seqs": "同时接纳更多请求",
    "set_tokenizer_workers": "把分词移出事件循环",
    "raise_api_server_count": "增加前端进程",
    "reject_long_prompts": "拒绝放不下的提示",
    "disable_context_shift": "报错而不是丢弃旧 token",
    "raise_max_model_len": "接受更长的请求",
    "lower_max_model_len": "为每个请求少预留一些",
    "raise_max_input_tokens": "接受更长的提示",
    "raise_max_num_batched_tokens": "让一步容纳更长的提示",
    "lower_max_num_batched_tokens": "让一步少算一些提示",
    "lower_client_max_tokens": "客户端减少请求的输出 token",
    "raise_client_max_tokens": "客户端允许更长的回答",
    "shorten_client_prompts": "客户端发送更短的提示",
    "lower_request_rate": "客户端降低每秒请求数",
    "add_replicas": "增加服务副本",
    "limit_queue": "尽早拒绝，而不是无限排队",
    "enable_chunked_prefill": "把长提示分成多步",
    "enable_prefix_caching": "复用共享前缀的 KV 块",
    "extend_shared_prefix": "客户端把共享内容放在提示最前",
    "use_cuda_graphs": "以 CUDA 图执行 decode 步",
    "raise_cuda_graph_max_bs": "为更大的批量捕获图",
    "raise_cpu_limit": "给服务更多核",
    "set_omp_num_threads": "计算线程数与核数一致",
    "move_cpu_neighbours": "把其他程序移出服务的核",
    "raise_stream_interval": "一个流式事件发送多个 token",
    "raise_client_concurrency": "客户端保持更多在途请求",
    "fix_gpu_cooling": "修复风扇、风道或进风温度",
    "raise_gpu_power_limit": "允许设备使用更多功率",
    "service_gpu": "先排空，再复位、维修或更换设备",
    "restart_engine": "重启服务",
}


def means(action: str, lang: str = "en") -> str | None:
    """What to do in plain words, where an engine has no flag for it; None for an action that is not of the list."""
    if action not in ACTIONS:
        return None
    return _IN_CHINESE[action] if lang == "zh" else ACTIONS[action].means


# Other knobs, the same memory: what one gives to the KV pool, the other takes from it.
_CROSSED = (
    frozenset({"raise_kv_capacity", "lower_gpu_memory_utilization"}),
    frozenset({"raise_gpu_memory_utilization", "lower_kv_capacity"}),
)


def opposite(action: str) -> str | None:
    """The action that undoes `action` by design, on the same knob."""
    return ACTIONS[action].opposes


def conflicting(action: str) -> frozenset[str]:
    """Actions that two rules must never advise beside `action`: they push one knob, or one memory, to and fro."""
    crossed = {other for pair in _CROSSED if action in pair for other in pair if other != action}
    back = opposite(action)
    return frozenset(crossed if back is None else crossed | {back})
