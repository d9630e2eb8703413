"""Actions that the bundled engine cannot take while it serves: named in a plan, never carried out."""

from __future__ import annotations

from infradoc.remediation.actions.base import ManualAction, by_name

RESTART = "restart the engine with the flag"
CLIENTS = "whoever sends the requests has to change them"
OPERATOR = "the operator has to do it"

MANUAL = by_name(
    ManualAction("raise_gpu_memory_utilization", "gpu_memory_utilization", "other processes on the device", RESTART),
    ManualAction("raise_api_server_count", "api_server_count", "memory and cores for each front end", RESTART),
    ManualAction("disable_context_shift", "context_shift", "requests over the limit: they fail", RESTART),
    ManualAction("raise_max_input_tokens", "max_input_tokens", "fewer requests fit into the KV pool", RESTART),
    ManualAction("lower_client_max_tokens", "client_max_tokens", "callers who need long answers", CLIENTS),
    ManualAction("shorten_client_prompts", "client_prompt_tokens", "callers: less context in each prompt", CLIENTS),
    ManualAction("lower_request_rate", "request_rate", "callers: fewer requests a second", CLIENTS),
    ManualAction("set_expandable_segments", "pytorch_alloc_conf", "set-ups that share tensors by CUDA IPC", RESTART),
    ManualAction("stop_other_process", "other_process", "whoever uses that program", OPERATOR),
    ManualAction("raise_host_ram", "host_ram", "the budget: more memory", OPERATOR),
    ManualAction("add_replicas", "replicas", "the budget: another device", OPERATOR),
    ManualAction("fix_gpu_cooling", "gpu_cooling", "callers, while the host is out of service", OPERATOR),
    ManualAction("raise_gpu_power_limit", "gpu_power_limit", "the rack's power budget and cooling", OPERATOR),
    ManualAction("service_gpu", "gpu_device", "callers without another replica", OPERATOR),
    ManualAction("restart_engine", "engine_restart", "every request in flight is lost", OPERATOR),
    ManualAction(
        "extend_shared_prefix", "client_shared_prefix_tokens", "clients: their prompt templates change", CLIENTS
    ),
    ManualAction("raise_cuda_graph_max_bs", "cuda_graph_max_bs", "the KV pool: graphs take device memory", RESTART),
    ManualAction("raise_cpu_limit", "cpu_limit", "whatever else runs on the node", OPERATOR),
    ManualAction("set_omp_num_threads", "omp_num_threads", "nobody, while the quota stays", RESTART),
    ManualAction("move_cpu_neighbours", "other_process", "what is moved: it needs cores elsewhere", OPERATOR),
    ManualAction("raise_stream_interval", "stream_interval", "readers: text comes in larger pieces", RESTART),
    ManualAction(
        "raise_client_concurrency", "client_concurrency", "single requests: somewhat slower in larger batches", CLIENTS
    ),
    ManualAction("raise_client_max_tokens", "client_max_tokens", "other callers: fewer requests a second", CLIENTS),
)
