"""The metrics page speaks canonical names, with canonical labels, and nothing else."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from infradoc_rules.signals import signal_table

EXPECTED = [
    "llm_requests_running",
    "llm_requests_waiting",
    "llm_requests_swapped",
    "llm_kv_host_usage_ratio",
    "llm_kv_transfer_bytes_total",
    "llm_kv_leaked_block_age_seconds",
    "llm_oom_total",
    "llm_steps_total",
    "llm_engine_draining",
    "llm_requests_received_total",
    "llm_requests_rejected_total",
    "llm_requests_finished_total",
    "llm_requests_truncated_total",
    "llm_truncated_tokens_total",
    "llm_kv_cache_usage_ratio",
    "llm_kv_pool_blocks",
    "llm_kv_available_blocks",
    "llm_kv_blocks",
    "llm_kv_block_size_tokens",
    "llm_kv_pool_tokens",
    "llm_kv_tail_waste_tokens",
    "llm_kv_fragmentation_ratio",
    "llm_preemptions_total",
    "llm_recomputed_tokens_total",
    "llm_prefix_cache_queried_tokens_total",
    "llm_prefix_cache_hit_tokens_total",
    "llm_prompt_tokens_total",
    "llm_prompt_computed_tokens_total",
    "llm_generation_tokens_total",
    "llm_step_tokens",
    "llm_step_seconds",
    "llm_time_to_first_token_seconds",
    "llm_inter_token_latency_seconds",
    "llm_request_seconds",
    "llm_request_stage_seconds",
    "llm_request_prompt_tokens",
    "llm_prompt_tokens_before_truncation",
    "llm_request_output_tokens",
    "llm_request_max_tokens",
    "llm_engine_ready",
    "llm_engine_last_step_timestamp_seconds",
    "llm_device_memory_bytes",
    "llm_cache_config_info",
    "llm_model_info",
    "llm_http_requests_total",
    "llm_http_request_seconds",
    "llm_tokenizer_queue_requests",
    "proc_event_loop_lag_seconds",
    "proc_resident_memory_bytes",
    "proc_cpu_seconds_total",
    "proc_start_time_seconds",
    "config_value",
    "config_info",
]


@pytest.fixture(scope="module")
def families(server: Any) -> dict[str, Any]:
    server.complete("Hello", max_tokens=2)
    found = {}
    for family in text_string_to_metric_families(httpx.get(f"{server.url}/metrics").text):
        # The parser drops _total from the names of counters.
        found[family.name + ("_total" if family.type == "counter" else "")] = family
    return found


def test_every_expected_name_is_there(families: dict[str, Any]) -> None:
    assert set(EXPECTED) <= set(families)
    assert all(families[name].samples for name in EXPECTED)


def test_names_kinds_and_labels_are_canonical(families: dict[str, Any]) -> None:
    signals = signal_table().signals
    for name, family in families.items():
        assert name in signals, f"{name} is not in signals.yaml"
        kind = "gauge" if signals[name].kind == "info" else signals[name].kind
        assert family.type == kind, name
        for sample in family.samples:
            assert set(sample.labels) - {"le", "model"} <= set(signals[name].labels), sample


def test_closed_labels_are_there_from_the_start(families: dict[str, Any]) -> None:
    def labels(name: str, label: str) -> set[str]:
        return {sample.labels[label] for sample in families[name].samples}

    assert labels("llm_kv_blocks", "state") == {"free", "live", "cached", "shared", "reserved", "leaked"}
    assert labels("llm_preemptions_total", "reason") == {"kv_full", "priority", "resize", "fault"}
    assert labels("llm_requests_finished_total", "reason") == {"stop", "length", "abort", "error"}
    assert {"length", "queue_full", "invalid"} <= labels("llm_requests_rejected_total", "reason")
    assert len(labels("llm_request_stage_seconds", "stage")) == 9
    assert labels("llm_kv_transfer_bytes_total", "direction") == {"in", "out"}
    assert labels("llm_steps_total", "graph") == {"true", "false"}
    assert labels("llm_device_memory_bytes", "part") == {"weights", "kv", "activations", "graphs", "other"}


def test_buckets_are_fine(families: dict[str, Any]) -> None:
    for name in ("llm_time_to_first_token_seconds", "llm_inter_token_latency_seconds", "llm_request_seconds"):
        bounds = [float(s.labels["le"]) for s in families[name].samples if s.name.endswith("_bucket")][:-1]
        assert all(high / low < 1.3 for low, high in pairwise(bounds))
        assert bounds[0] <= 1e-3 and bounds[-1] >= 60


def test_ledger_sums_to_the_pool(families: dict[str, Any]) -> None:
    assert sum(s.value for s in families["llm_kv_blocks"].samples) == families["llm_kv_pool_blocks"].samples[0].value
