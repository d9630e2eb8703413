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
    ManualAction("raise_max_model_len", "max_model_len", "fewer requests fit into the KV pool", RESTART),
    ManualAction("raise_max_input_tokens", "max_input_tokens", "fewer requests fit into the KV pool", RESTART),
    ManualAction("lower_client_max_tokens", "client_max_tokens", "callers who need long answers", CLIENTS),
    ManualAction("shorten_client_prompts", "client_prompt_tokens", "callers: less context in each prompt", CLIENTS),
    ManualAction("lower_request_rate", "request_rate", "callers: fewer requests a second", CLIENTS),
    ManualAction("add_replicas", "replicas", "the budget: another device", OPERATOR),
    ManualAction("restart_engine", "engine_restart", "every request in flight is lost", OPERATOR),
)
