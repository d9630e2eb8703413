"""Other spellings of engines' metrics, brought to the names that the engines themselves give.

Exporters that may not have a colon in a name (OpenTelemetry, Ray, gRPC servers) put an underscore there; Triton's
backend of TensorRT-LLM keeps several signals in one gauge, told apart by a label.
"""

from __future__ import annotations

from infradoc_rules.lazy_pattern import lazy

_PREFIX = lazy(r"^(?P<head># (?:HELP|TYPE|UNIT) )?(?:ray_)?(?P<engine>vllm|sglang|lmdeploy|llamacpp)[_:](?=[a-z])")
_TRITON = lazy(
    r'^nv_trt_llm_(?:request|kv_cache_block)_metrics\{[^{}]*\b(?:request_type|kv_cache_block_type)="(?P<kind>\w+)"[^{}]*\}'
)
_TRITON_NAMES = {
    "scheduled": "trtllm_num_requests_running",
    "waiting": "trtllm_num_requests_waiting",
    "fraction": "trtllm_kv_cache_utilization",
    "tokens_per": "trtllm_kv_cache_tokens_per_block",
}
_TRITON_BLOCKS = lazy(r'kv_cache_block_type="max"')
_LIMIT = lazy(
    r'^(?:sglang:max_running_requests(?:\{[^{}]*\})?|nv_trt_llm_request_metrics\{[^{}]*request_type="max"[^{}]*\}) +'
    r"(?P<value>\d+(?:\.0)?)(?:\s|$)"
)


def usual(line: str) -> str:
    """The line under the engine's own name of the metric; any other line as it is."""
    if "trt_llm_" in line:
        found = _TRITON.match(line)
        name = _TRITON_NAMES.get(found["kind"]) if found else None
        if found and name is None and _TRITON_BLOCKS.search(line):
            name = "trtllm_kv_cache_max_blocks"
        return f"{name}{line[found.end() :]}" if found and name else line
    found = _PREFIX.match(line)
    return f"{found['head'] or ''}{found['engine']}:{line[found.end() :]}" if found else line


def places(line: str) -> int | None:
    """How many requests may run at once, where the page has that as a gauge."""
    found = _LIMIT.match(line)
    return int(float(found["value"])) or None if found else None
