"""Sizing of CPU, prefill, prefix, output, graph and concurrency advice: numbers, flags, silence where it is no help."""

from __future__ import annotations

import re

import pytest

from infradoc_rules.actions import ACTIONS
from infradoc_rules.advise import ADVISERS, Advice
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.model import Event, Fact, Series

T0 = 1_700_000_000.0
TIMES = [T0 + second for second in range(61)]
_NAME = re.compile(r"^(\w+)(?:\{(.*)\})?$")


def _series(text, per_second=0.0, start=0.0):
    """A series that starts at `start` and grows by `per_second`; a constant without growth."""
    name, labels = _NAME.match(text).groups()
    pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels or ""))
    return Series(name, pairs, TIMES, [start + per_second * index for index in range(61)])


def _histogram(name, rates, labels=None):
    """Cumulative buckets at 2 % steps around each value: value -> observations a second."""
    bounds = sorted({round(value * factor, 6) for value in rates for factor in (0.98, 1.0)})
    rows = []
    for bound in (*bounds, float("inf")):
        rate = sum(count for value, count in rates.items() if value <= bound)
        le = "+Inf" if bound == float("inf") else format(bound, "g")
        rows.append(
            Series(f"{name}_bucket", {**(labels or {}), "le": le}, TIMES, [rate * index for index in range(61)])
        )
    return rows


def _advice(system="vllm", facts=None, series=(), events=(), lang="en"):
    frame = MemoryFrame.build(
        list(series),
        now=TIMES[-1],
        facts=[Fact(name, value, "api") for name, value in (facts or {}).items()],
        events=events,
        system=system,
    )
    return Advice(frame, {}, lang)


QUOTA = (
    _series("host_cpu_quota_cores", start=2),
    _series("host_cpus", start=16),
    _series('host_cpu_periods_total{throttled="true"}', 8),
    _series('host_cpu_periods_total{throttled="false"}', 2),
)
CROWDED = (
    _series('host_cpu_seconds_total{mode="user"}', 2),
    _series('proc_cpu_seconds_total{role="engine", pid="1"}', 0.7),
    _series('proc_run_queue_seconds_total{role="engine", pid="1"}', 1.2),
    _series("host_cpus", start=2),
)
PINNED = (
    _series('host_cpu_seconds_total{mode="user"}', 1.1),
    _series('proc_cpu_seconds_total{role="engine", pid="1"}', 1),
    _series('proc_run_queue_seconds_total{role="engine", pid="1"}', 1.9),
    _series("host_cpus", start=8),
)
LONG_GAPS = (
    *_histogram("llm_inter_token_latency_seconds", {0.08: 7.5, 11.0: 0.1}),
    *_histogram("llm_request_prompt_tokens", {60: 0.3, 1800: 0.04}),
)
RUNNING = (_series("llm_requests_running", start=4),)
CUT = (
    *_histogram("llm_request_max_tokens", {100: 2}),
    *_histogram("llm_request_prompt_tokens", {60: 2}),
)
CROWDED_POOL = (
    _series("llm_kv_cache_usage_ratio", start=0.95),
    _series("llm_requests_running", start=12),
    _series("llm_requests_waiting", start=3),
    _series("llm_kv_pool_tokens", start=4096),
    *_histogram("llm_request_prompt_tokens", {600: 1}),
    *_histogram("llm_request_output_tokens", {200: 1}),
)
# name -> (system, facts, series) in which it has something to say, and the number that it says
SETUPS = {
    "set_omp_num_threads": ("vllm", {"omp_num_threads": 16}, QUOTA, 2),
    "raise_cpu_limit": ("vllm", {}, QUOTA, 4),
    "move_cpu_neighbours": ("vllm", {}, CROWDED, None),
    "enable_chunked_prefill": ("vllm", {"chunked_prefill": False}, (), True),
    "lower_max_num_batched_tokens": ("infradoc", {"max_num_batched_tokens": 8192, "max_num_seqs": 16}, LONG_GAPS, 128),
    "enable_prefix_caching": ("infradoc", {"prefix_caching": False}, (), True),
    "extend_shared_prefix": ("vllm", {"prefix_caching": True, "block_size": 32}, (), 32),
    "hold_prefixes": ("infradoc", {"max_num_seqs": 16, "block_size": 16, "kv_pool_tokens": 4096}, CROWDED_POOL, 12000),
    "raise_client_concurrency": ("infradoc", {"max_num_seqs": 64}, RUNNING, 16),
    "raise_client_max_tokens": ("vllm", {"max_model_len": 2048}, CUT, 396),
    "raise_cuda_graph_max_bs": ("infradoc", {"cuda_graph_max_bs": 2}, RUNNING, 4),
    "use_cuda_graphs": ("vllm", {"enforce_eager": True}, (), False),
    "raise_stream_interval": ("vllm", {}, (), 4),
    "set_detokenizer_workers": ("sglang", {"tokenizer_workers": 1, "hint.cores": 8, "omp_num_threads": 2}, (), 6),
}


def _one(name, *args, **kwargs):
    return ADVISERS[name](_advice(*args, **kwargs))


@pytest.mark.parametrize("name", sorted(SETUPS))
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_action_names_knob_number_cost_and_loser(name, lang):
    system, facts, series, number = SETUPS[name]
    action = _one(name, system, facts, series, lang=lang)
    spec = ACTIONS[action.name]
    assert (action.knob, action.change, action.risk) == (spec.knob, spec.change, spec.risk)
    assert action.to_value == number
    if lang == "en":
        assert "loser" in action.cost
    else:
        assert any("\u4e00" <= char <= "\u9fff" for char in action.cost)
        assert any("\u4e00" <= char <= "\u9fff" for char in action.why)


@pytest.mark.parametrize("name", sorted({"enable_chunked_prefill", "enable_prefix_caching", "use_cuda_graphs"}))
def test_a_switch_of_unknown_or_right_setting_is_not_advised(name):
    knob = ACTIONS[name].knob
    right = name != "use_cuda_graphs"
    assert _one(name, "vllm", {}) is None
    assert _one(name, "vllm", {knob: right}) is None


def test_threads_follow_the_quota_not_the_node():
    assert _one("set_omp_num_threads", "vllm", {}, QUOTA).from_value == 16  # torch starts one per core of the node
    assert _one("set_omp_num_threads", "vllm", {"omp_num_threads": 2}, QUOTA) is None
    left = _one("set_omp_num_threads", "vllm", {"omp_num_threads": 16}, CROWDED)  # neighbours on them
    assert left.from_value == 16 and 1 <= left.to_value < 16


def test_cores_are_what_is_used_and_waited_for():
    assert _one("raise_cpu_limit", "llamacpp", {}, PINNED).to_value == 3
    assert _one("raise_cpu_limit", "llamacpp", {}, CROWDED) is None  # neighbours have the cores
    assert _one("move_cpu_neighbours", "llamacpp", {}, PINNED) is None
    assert "1.3 cores" in _one("move_cpu_neighbours", "llamacpp", {}, CROWDED).why


def test_a_stolen_core_is_the_hypervisors():
    stolen = (*PINNED, _series('host_cpu_seconds_total{mode="steal"}', 2))
    assert "hypervisor" in _one("move_cpu_neighbours", "vllm", {}, stolen).why


@pytest.mark.parametrize(
    ("system", "facts", "number"),
    [
        ("infradoc", {"max_num_batched_tokens": 8192, "max_num_seqs": 16}, 128),
        ("vllm", {"max_num_batched_tokens": 8192}, 256),  # vLLM starts with no budget below max_num_seqs
        ("infradoc", {"max_num_batched_tokens": 8192, "max_num_seqs": 300}, 512),
        ("vllm", {}, 256),
    ],
)
def test_the_chunk_shrinks_to_a_quarter_of_a_second(system, facts, number):
    assert _one("lower_max_num_batched_tokens", system, facts, LONG_GAPS).to_value == number


def test_a_chunk_that_is_small_already_stays():
    assert _one("lower_max_num_batched_tokens", "infradoc", {"max_num_batched_tokens": 128}, LONG_GAPS) is None
    budget = Event("prefill_budget", 1, {"tokens": 2048})
    assert _one("lower_max_num_batched_tokens", "vllm", {}, LONG_GAPS, events=[budget]).from_value == 2048


def test_the_bundled_engine_splits_by_its_budget():
    facts = {"chunked_prefill": False, "max_num_batched_tokens": 2048, "max_num_seqs": 16}
    assert _one("enable_chunked_prefill", "infradoc", facts, LONG_GAPS) is None
    assert _one("lower_max_num_batched_tokens", "infradoc", facts, LONG_GAPS).to_value == 128
    small = {"chunked_prefill": False, "max_num_batched_tokens": 128}
    assert _one("enable_chunked_prefill", "infradoc", small, LONG_GAPS).to_value is True


def test_blocks_that_are_free_hold_prefixes_already():
    assert _one("hold_prefixes", "infradoc", {}, (_series("llm_kv_cache_usage_ratio", start=0.4),)) is None
    assert _one("extend_shared_prefix", "infradoc", {"prefix_caching": False}) is None


def test_answers_get_no_longer_than_the_model_takes():
    assert _one("raise_client_max_tokens", "vllm", {"max_model_len": 300}, CUT).to_value == 240
    assert _one("raise_client_max_tokens", "vllm", {"max_model_len": 150}, CUT) is None
    assert _one("raise_client_max_tokens", "vllm", {}).to_value is None


def test_concurrency_ends_at_the_slots_and_at_the_pool():
    assert _one("raise_client_concurrency", "infradoc", {"max_num_seqs": 8}, RUNNING).to_value == 8
    assert _one("raise_client_concurrency", "infradoc", {"max_num_seqs": 4}, RUNNING) is None
    half = (*RUNNING, _series("llm_kv_cache_usage_ratio", start=0.5))
    assert _one("raise_client_concurrency", "infradoc", {"max_num_seqs": 64}, half).to_value == 6
    assert _one("raise_client_concurrency", "infradoc", {"max_num_seqs": 64}) is None


def test_front_end_knobs_are_only_for_engines_that_have_them():
    assert _one("raise_stream_interval", "infradoc", {}) is None
    assert _one("raise_stream_interval", "llamacpp", {}) is None
    assert _one("raise_stream_interval", "vllm", {"stream_interval": 8}) is None
    assert _one("set_detokenizer_workers", "infradoc", {"tokenizer_workers": 0}) is None


def test_graphs_cover_the_batch_that_is_seen():
    assert _one("raise_cuda_graph_max_bs", "sglang", {"cuda_graph_max_bs": 8}, RUNNING) is None
    assert _one("raise_cuda_graph_max_bs", "sglang", {}, RUNNING) is None
    many = (_series("llm_requests_running", start=2000),)
    assert _one("raise_cuda_graph_max_bs", "sglang", {"cuda_graph_max_bs": 32}, many).to_value == 512
    assert _one("raise_cuda_graph_max_bs", "sglang", {"cuda_graph_max_bs": 512}, many) is None
