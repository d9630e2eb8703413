"""Signal maps: real pages of each engine, and the names that older versions used."""

from __future__ import annotations

import re

import pytest

from infradoc_rules.maps import SYSTEMS, detect, load_map
from infradoc_rules.maps.info import parse_value
from infradoc_rules.signals import signal_table

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def _mapped(system, text):
    signal_map, found = load_map(system), {}
    for name, labels, value in _SAMPLE.findall(text):
        if name in signal_map.names:
            mapped = signal_map.apply(name, dict(_LABEL.findall(labels)))
            if mapped is not None:
                found[mapped[0], tuple(sorted(mapped[1].items()))] = float(value) * mapped[2]
    return found


@pytest.fixture(scope="module")
def vllm(recordings):
    return _mapped("vllm", (recordings / "samples" / "vllm_metrics_loaded.txt").read_text())


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_target_is_a_canonical_series_with_known_labels(system):
    signal_map, table = load_map(system), signal_table()
    for name in signal_map.names:
        mapped = signal_map.apply(name, {})
        if mapped is not None:
            assert table.resolve(mapped[0]) is not None, name
            assert set(mapped[1]) <= set(table.resolve(mapped[0]).labels) | {"engine", "model"}, name
    assert signal_map.provides <= set(table.signals)


def test_a_loaded_vllm_page(vllm):
    rank = (("engine", "0"), ("model", "smol"))
    assert vllm["llm_requests_running", rank] == 24.0
    assert vllm["llm_kv_cache_usage_ratio", rank] == pytest.approx(0.1212, abs=1e-3)
    assert vllm["llm_requests_finished_total", (*rank, ("reason", "stop"))] == 148.0
    assert vllm["llm_http_requests_total", (("code", "2xx"), ("method", "POST"), ("path", "/v1/completions"))] == 153.0
    assert vllm["llm_http_request_bytes_total", (("path", "/v1/completions"),)] == 302460.0
    assert vllm["llm_step_tokens_count", rank] == 1256.0
    assert vllm["llm_request_stage_seconds_count", (*rank, ("stage", "queue"))] == 148.0
    assert vllm["llm_prompt_computed_tokens_total", rank] == 18747.0
    assert vllm["llm_requests_rejected_total", (("model", "smol"), ("reason", "queue_full"))] == 0.0
    assert vllm["proc_cpu_seconds_total", (("role", "api"),)] == 22.98
    assert ("llm_requests_waiting_by_reason", (*rank, ("reason", "capacity"))) in vllm
    states = [labels for name, labels in vllm if name == "llm_engine_sleeping"]
    assert all(dict(labels)["sleep_state"] != "awake" for labels in states) and len(states) == 2


def test_histograms_keep_their_bounds(vllm):
    bounds = [dict(labels)["le"] for name, labels in vllm if name == "llm_time_to_first_token_seconds_bucket"]
    assert "0.001" in bounds and "+Inf" in bounds


def test_created_stamps_and_foreign_names_are_left_out():
    signal_map = load_map("vllm")
    for name in ("vllm:num_preemptions_created", "http_response_size_bytes_sum", "python_info", "llm_requests_running"):
        assert name not in signal_map.names
        assert signal_map.apply(name, {}) is None


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("vllm:num_preemptions", "llm_preemptions_total"),
        ("vllm:num_preemptions_total", "llm_preemptions_total"),
        ("vllm:gpu_cache_usage_perc", "llm_kv_cache_usage_ratio"),
        ("vllm:time_per_output_token_seconds_sum", "llm_inter_token_latency_seconds_sum"),
        ("vllm:request_time_per_output_token_seconds_sum", "llm_time_per_output_token_seconds_sum"),
        ("vllm:iteration_tokens_total_bucket", "llm_step_tokens_bucket"),
    ],
)
def test_spellings_of_other_versions(name, canonical):
    assert load_map("vllm").apply(name, {})[0] == canonical


@pytest.mark.parametrize(
    ("system", "name", "labels", "mapped"),
    [
        # Without it a server whose requests all succeed would count none as finished, and any queue waits for ever.
        ("sglang", "sglang:num_requests_total", {"model_name": "m"}, ("llm_requests_finished_total", "stop")),
        ("sglang", "sglang:num_aborted_requests_total", {}, ("llm_requests_finished_total", "abort")),
        ("tgi", "tgi_batch_inference_duration_count", {"method": "decode"}, ("llm_steps_total", None)),
        ("tgi", "tgi_batch_inference_duration_sum", {"method": "decode"}, None),
        ("lmdeploy", "lmdeploy:request_success_total", {"finished_reason": "x"}, ("llm_requests_finished_total", "x")),
        ("trtllm", "trtllm_num_requests_waiting", {"engine_type": "pytorch"}, ("llm_requests_waiting", None)),
    ],
)
def test_what_other_engines_count(system, name, labels, mapped):
    found = load_map(system).apply(name, labels)
    assert (None if found is None else (found[0], found[1].get("reason"))) == mapped
    assert found is None or "method" not in found[1]


def test_cache_config_of_vllm(recordings):
    text = (recordings / "samples" / "vllm_metrics_loaded.txt").read_text()
    [labels] = [dict(_LABEL.findall(row[1])) for row in _SAMPLE.findall(text) if row[0] == "vllm:cache_config_info"]
    reading = load_map("vllm").info("vllm:cache_config_info", labels)
    facts = {fact.name: fact.value for fact in reading.facts}
    assert facts["block_size"] == 128
    assert facts["kv_pool_tokens"] == 46592
    assert facts["gpu_memory_utilization"] == 0.92
    assert facts["prefix_caching"] is True
    assert facts["hint.kv_bytes_per_token"] == 46091
    samples = {name: (labels, value) for name, labels, value in reading.samples}
    assert samples["llm_kv_pool_tokens"] == ({"engine": "0"}, 46592.0)
    assert samples["llm_kv_pool_blocks"][1] == 364.0
    assert samples["llm_cache_config_info"][0]["num_blocks"] == "364"


def test_bytes_per_token_are_not_derived_from_an_override():
    labels = {
        "block_size": "128",
        "num_gpu_blocks": "24",
        "num_gpu_blocks_override": "24",
        "kv_cache_memory_bytes": "2147483648",
    }
    facts = {fact.name: fact.value for fact in load_map("vllm").info("vllm:cache_config_info", labels).facts}
    assert "hint.kv_bytes_per_token" not in facts
    assert facts["kv_pool_tokens"] == 3072
    assert facts["kv.pool_blocks_override"] == 24


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity", "1e999"])
def test_figures_that_are_none_give_no_facts_and_no_fault(text):
    assert parse_value(text) == text
    vllm, own = load_map("vllm"), load_map("infradoc")
    labels = {"engine": "0", "kv_cache_size_tokens": text, "num_gpu_blocks": text, "block_size": "16"}
    reading = vllm.info("vllm:cache_config_info", labels)
    assert "kv_pool_tokens" not in {fact.name for fact in reading.facts}
    assert own.info("config_value", {"knob": "max_num_seqs", "origin": "flag"}, float(text)).facts == []


def test_an_empty_cache_config_gives_no_guess():
    reading = load_map("vllm").info("vllm:cache_config_info", {"num_gpu_blocks": "None"})
    assert [fact for fact in reading.facts if fact.name == "kv_pool_tokens"] == []
    assert [name for name, _, _ in reading.samples] == ["llm_cache_config_info"]


def test_a_llamacpp_page(recordings):
    found = _mapped("llamacpp", (recordings / "samples" / "llamacpp_metrics.txt").read_text())
    assert found["llm_prompt_computed_tokens_total", ()] == 2703.0
    assert found["llm_prefix_cache_hit_tokens_total", (("tier", "device"),)] == 2505.0
    assert found["llm_requests_waiting", ()] == 0.0
    assert "llm_requests_finished_total" not in load_map("llamacpp").provides


def test_the_bundled_engine_speaks_our_names():
    signal_map = load_map("infradoc")
    assert signal_map.apply("llm_kv_blocks", {"state": "free"}) == ("llm_kv_blocks", {"state": "free"}, 1.0)
    assert signal_map.apply("proc_event_loop_lag_seconds_bucket", {"role": "api", "le": "0.1"}) is not None
    assert signal_map.apply("python_info", {}) is None


@pytest.mark.parametrize(
    ("name", "labels", "value", "fact"),
    [
        ("config_value", {"knob": "max_num_seqs", "origin": "flag"}, 16.0, ("max_num_seqs", 16, "flag")),
        ("config_value", {"knob": "watermark", "origin": "api"}, 0.05, ("watermark", 0.05, "api")),
        (
            "config_info",
            {"knob": "truncation_policy", "value": "left", "origin": "x"},
            1.0,
            ("truncation_policy", "left", "metrics"),
        ),
        ("llm_model_info", {"max_model_len": "2048"}, 1.0, ("max_model_len", 2048, "metrics")),
    ],
)
def test_configuration_of_the_bundled_engine(name, labels, value, fact):
    [got] = load_map("infradoc").info(name, labels, value).facts
    assert (got.name, got.value, got.origin) == fact


@pytest.mark.parametrize(
    ("page", "system"),
    [
        ("# HELP x\nvllm:num_requests_running 1\n", "vllm"),
        ("sglang:token_usage 1", "sglang"),
        ("tgi_queue_size 1", "tgi"),
        ("llamacpp:requests_processing 0", "llamacpp"),
        ("lmdeploy:num_requests_running 0", "lmdeploy"),
        ("trtllm_kv_cache_utilization 0.1", "trtllm"),
        ("llm_requests_running 0", "infradoc"),
        ("node_load1 0.5", None),
        ("<html>", None),
        ("", None),
        ({"vllm:x", "process_open_fds"}, "vllm"),
    ],
)
def test_detection(page, system):
    assert detect(page) == system


def test_an_unknown_system_names_the_known():
    with pytest.raises(LookupError, match=r"'ollama'; known systems: vllm, sglang"):
        load_map("ollama")


@pytest.mark.parametrize(
    ("text", "value"),
    [("None", None), ("", None), ("True", True), ("16", 16), ("0.92", 0.92), ("auto", "auto"), ("9" * 400, "9" * 400)],
)
def test_label_values(text, value):
    assert parse_value(text) == value
