"""Sizing functions: numbers, flags as each engine spells them, and silence where a change would not help."""

from __future__ import annotations

import pytest

from infradoc_rules.actions import ACTIONS, conflicting, means
from infradoc_rules.advise import ADVISERS, Advice, actions_for
from infradoc_rules.advise.base import round_up
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.knobs import knob_table
from infradoc_rules.model import Event, Fact, Series
from infradoc_rules.units import size_text

T0 = 1_700_000_000.0
TIMES = [T0 + second for second in range(61)]


def _advice(system="infradoc", facts=None, series=None, events=(), lang="en"):
    rows = [Series(name, {}, TIMES, list(values)) for name, values in (series or {}).items()]
    for name, bound in (("llm_request_prompt_tokens", 30.0), ("llm_request_output_tokens", 50.0)):
        for le, share in ((str(bound / 2), 0.0), (str(bound), 1.0), ("+Inf", 1.0)):
            rows.append(Series(f"{name}_bucket", {"le": le}, TIMES, [share * index for index in range(61)]))
    frame = MemoryFrame.build(
        rows,
        now=TIMES[-1],
        facts=[Fact(name, value, "api") for name, value in (facts or {}).items()],
        events=events,
        system=system,
    )
    return Advice(frame, {}, lang)


def _flat(**values):
    return {name: [float(value)] * 61 for name, value in values.items()}


THRASH = _flat(llm_requests_running=8, llm_requests_waiting=8, llm_kv_pool_tokens=384)
SIZED = {"max_num_seqs": 16, "block_size": 16, "kv_pool_tokens": 384, "hint.kv_bytes_per_token": 46080}


def _one(name, *args, **kwargs):
    return ADVISERS[name](_advice(*args, **kwargs))


def test_every_action_has_a_knob_and_opposes_actions_that_exist():
    for spec in ACTIONS.values():
        assert spec.knob in knob_table()
        assert all(spec.name in conflicting(other) for other in conflicting(spec.name))
        assert conflicting(spec.name) <= set(ACTIONS) - {spec.name}
        assert means(spec.name) == spec.means and means(spec.name, "zh") not in (None, spec.means)
    assert means("unheard_of") is None


def test_the_pool_grows_to_requests_times_p99_in_whole_blocks():
    action = _one("raise_kv_capacity", facts={**SIZED, "hint.free_memory_bytes": 10**10}, series=THRASH)
    assert (action.from_value, action.to_value) == (384, 16 * 80)  # 30 + 50 tokens are five blocks of 16
    assert action.flag == "--kv-pool-tokens 1280"
    assert action.live is True
    assert "39 MiB" in action.cost


def test_the_pool_grows_no_further_than_memory_goes():
    action = _one("raise_kv_capacity", facts={**SIZED, "hint.free_memory_bytes": 46080 * 400}, series=THRASH)
    assert 384 < action.to_value <= 384 + 320
    assert action.to_value % 16 == 0
    assert _one("raise_kv_capacity", facts={**SIZED, "hint.free_memory_bytes": 46080 * 10}, series=THRASH) is None


def test_the_pool_never_exceeds_what_the_limits_can_fill():
    facts = {**SIZED, "max_model_len": 64, "hint.free_memory_bytes": 10**10}
    assert _one("raise_kv_capacity", facts=facts, series=THRASH).to_value == 1024


def test_a_pool_of_unknown_size_is_advised_without_a_number():
    action = _one("raise_kv_capacity", "vllm", {}, _flat(llm_requests_running=3, llm_requests_waiting=2))
    assert (action.from_value, action.to_value, action.flag, action.live) == (
        None,
        None,
        "--num-gpu-blocks-override <more than now>",
        False,
    )


@pytest.mark.parametrize(
    ("facts", "flag"),
    [
        ({"kv.pool_blocks_override": 24}, "--num-gpu-blocks-override 80"),
        ({"hint.kv_bytes_per_token": 1000}, "--kv-cache-memory-bytes 1280000"),
        ({"hint.kv_bytes_per_token": 10**7, "VLLM_CPU_KVCACHE_SPACE": 2}, "VLLM_CPU_KVCACHE_SPACE=12"),
        ({}, "--num-gpu-blocks-override 80"),
    ],
)
def test_flags_of_vllm_for_the_pool(facts, flag):
    sized = {"max_num_seqs": 16, "block_size": 16, "kv_pool_tokens": 384, **facts}
    assert _one("raise_kv_capacity", "vllm", sized, THRASH).flag == flag


def test_lmdeploy_sizes_its_pool_by_a_share_and_counts_blocks():
    sized = {"max_num_seqs": 16, "target.version": "0.9.2"}
    action = _one("raise_kv_capacity", "lmdeploy", sized, THRASH)
    assert action.flag == "--cache-max-entry-count 0.93"  # 0.8 by default; 448 of 384 tokens
    assert (action.from_value, action.to_value) == (384, 448) and "in blocks of 64: 6 -> 7" in action.why
    assert _one("raise_kv_capacity", "lmdeploy", {**sized, "gpu_memory_utilization": 0.95}, THRASH) is None


def test_the_pool_of_llamacpp_is_its_context():
    assert _one("raise_kv_capacity", "llamacpp", {"max_num_seqs": 4}, THRASH).flag.startswith("--ctx-size ")


def test_output_that_leaves_no_room_gets_a_number():
    told = {"tokens": 9120, "output_tokens": 8192, "limit": 16384}
    action = _one("lower_client_max_tokens", "vllm", {}, events=[Event("request_rejected_length", 1, told)])
    assert (action.from_value, action.to_value, action.flag) == (8192, 7264, "max_tokens=7264")


def test_the_batch_shrinks_to_what_fits():
    action = _one("lower_max_num_seqs", facts=SIZED, series=THRASH)
    assert (action.from_value, action.to_value, action.flag) == (16, 4, "--max-num-seqs 4")
    assert _one("lower_max_num_seqs", facts=SIZED, series=_flat(llm_requests_running=1, llm_kv_pool_tokens=384)) is None


def test_the_batch_grows_no_further_than_the_pool():
    queue = _flat(llm_requests_running=4, llm_requests_waiting=60)
    facts = {"max_num_seqs": 4, "block_size": 16}
    action = _one("raise_max_num_seqs", facts=facts, series={**queue, **_flat(llm_kv_pool_tokens=1000)})
    assert action.to_value == 10  # 850 tokens hold ten of 80
    small = {**queue, **_flat(llm_kv_pool_tokens=384)}
    assert _one("raise_max_num_seqs", facts=facts, series=small) is None


def test_slots_of_llamacpp_take_their_context_along():
    action = _one(
        "raise_max_num_seqs",
        "llamacpp",
        {"max_num_seqs": 1, "max_model_len": 4096},
        _flat(llm_requests_running=1, llm_requests_waiting=2),
    )
    assert action.flag == "--parallel 3 --ctx-size 12288"
    assert "--ctx-size is shared by the slots (-np, --parallel), so it is slots x length" in action.why
    assert "pool" not in action.why  # it shares none


@pytest.mark.parametrize(
    ("facts", "workers"),
    [
        ({"tokenizer_workers": 0, "hint.cores": 2, "hint.torch_threads": 1}, 1),
        ({"tokenizer_workers": 0, "hint.cores": 2, "hint.torch_threads": 2}, 1),
        ({"tokenizer_workers": 0, "hint.cores": 16, "hint.torch_threads": 4}, 12),
        ({"tokenizer_workers": 0}, 1),
        ({"tokenizer_workers": 1, "hint.cores": 2, "hint.torch_threads": 1}, None),
    ],
)
def test_tokenizer_workers(facts, workers):
    action = _one("set_tokenizer_workers", facts=facts)
    assert (action.to_value if action else None) == workers
    if action:
        assert (action.flag, action.live) == (f"--tokenizer-workers {workers}", True)


def test_vllm_has_a_worker_already():
    action = _one("set_tokenizer_workers", "vllm", {}, _flat(host_cpus=2))
    assert (action.from_value, action.to_value, action.flag) == (1, 2, "--renderer-num-workers 2")


def test_only_an_engine_that_reports_the_knob_takes_it_live():
    assert _one("limit_queue", series=THRASH).live is False
    assert _one("limit_queue", facts={"max_queued_requests": 100}, series=THRASH).live is True


@pytest.mark.parametrize(
    ("system", "flag"),
    [
        ("infradoc", "--truncation-policy reject"),
        ("vllm", "drop truncate_prompt_tokens from the requests"),
        ("sglang", "drop --allow-auto-truncate"),
    ],
)
def test_rejecting(system, flag):
    assert _one("reject_long_prompts", system, {"truncation_policy": "left"}).flag == flag


def test_no_rejecting_where_it_is_done_or_there_is_no_choice():
    assert _one("reject_long_prompts", facts={"truncation_policy": "reject"}) is None
    assert _one("reject_long_prompts", "llamacpp") is None


REFUSED = (
    Event("request_rejected_length", 1, {"tokens": 1500, "limit": 1024}),
    Event("request_rejected_length", 2, {"tokens": 2399, "limit": 1024}),
)


@pytest.mark.parametrize(
    ("system", "facts", "name", "value", "flag"),
    [
        ("llamacpp", {"max_num_seqs": 4, "max_model_len": 1024}, "raise_max_model_len", 2560, "--ctx-size 10240"),
        ("vllm", {"max_model_len": 1024}, "raise_max_model_len", 2560, "--max-model-len 2560"),
        ("vllm", {"max_model_len": 8192}, "raise_max_num_batched_tokens", 2560, "--max-num-batched-tokens 2560"),
        ("tgi", {}, "raise_max_input_tokens", 2560, "--max-input-tokens 2560"),
    ],
)
def test_the_limit_that_was_hit_is_raised_to_the_longest_request(system, facts, name, value, flag):
    action = _one("raise_length_limit", system, facts, events=REFUSED)
    assert (action.name, action.from_value, action.to_value, action.flag) == (name, 1024, value, flag)


def test_the_flag_of_llamacpp_says_that_the_slots_share_it():
    known, unknown = (
        _one("raise_length_limit", "llamacpp", facts, events=REFUSED)
        for facts in ({"max_num_seqs": 4, "max_model_len": 1024}, {"max_model_len": 1024})
    )
    assert known.flag == "--ctx-size 10240" and "(-np, --parallel), so it is slots x length" in known.why
    assert unknown.flag == "--ctx-size 2560" and "this is the length of one, so multiply it" in unknown.why
    assert "--ctx-size" not in _one("raise_length_limit", "vllm", {"max_model_len": 1024}, events=REFUSED).why


def test_the_log_may_name_the_step_budget_itself():
    refused = [Event("request_rejected_length", 1, {"tokens": 3000, "limit": 2560, "which": "step_budget"})]
    assert _one("raise_length_limit", "vllm", {}, events=refused).name == "raise_max_num_batched_tokens"


def test_a_window_that_slides_is_doubled():
    cut = [Event("context_shifted", 1, {"discarded": 50})]
    action = _one("raise_length_limit", "llamacpp", {"max_num_seqs": 10, "max_model_len": 102}, events=cut)
    assert (action.name, action.from_value, action.to_value, action.flag) == (
        "raise_max_model_len",
        102,
        256,
        "--ctx-size 2560",
    )


def test_without_lengths_the_batch_grows_by_the_use_of_the_pool():
    line = Event("stats_line", 1, {"running": 256, "waiting": 4800, "kv_usage": 0.25})
    frame = MemoryFrame.build(events=[line], system="vllm")
    action = ADVISERS["raise_max_num_seqs"](Advice(frame, {}))
    assert (action.from_value, action.to_value) == (256, 870)


def test_no_limit_above_what_the_model_knows():
    assert (
        _one("raise_length_limit", "vllm", {"max_model_len": 1024, "model.max_positions": 2048}, events=REFUSED) is None
    )


def test_a_limit_that_is_far_away_is_not_the_cause():
    assert _one("raise_length_limit", "vllm", {"max_model_len": 2048}) is None


def test_load_is_brought_down_to_what_finishes():
    series = {
        "llm_requests_finished_total": [0.5 * index for index in range(61)],
        "llm_requests_waiting": [1.0 * index for index in range(61)],
        "llm_requests_running": [8.0] * 61,
    }
    rate, copies, queue = actions_for(
        ["lower_request_rate", "add_replicas", "limit_queue"], _advice("vllm", {}, series)
    )
    assert (rate.from_value, rate.to_value) == (1.5, 0.5)
    assert (copies.from_value, copies.to_value) == (1, 3)
    assert (queue.to_value, queue.flag) == (15, "--max-num-queued-reqs 15")


@pytest.mark.parametrize(
    ("facts", "value"),
    [
        ({"gpu_memory_utilization": 0.85}, 0.9),
        ({"gpu_memory_utilization": 0.92}, 0.95),
        ({"gpu_memory_utilization": 0.95}, None),
        ({}, None),
        ({"gpu_memory_utilization": 0.8, "kv.pool_blocks_override": 9}, None),
    ],
)
def test_a_larger_share_of_memory(facts, value):
    action = _one("raise_gpu_memory_utilization", "vllm", facts)
    assert (action.to_value if action else None) == value


def test_helpers():
    assert (round_up(80.0, 16), round_up(81, 16)) == (80, 96)
    assert (size_text(2**20 * 5), size_text(2**31)) == ("5 MiB", "2.0 GiB")
