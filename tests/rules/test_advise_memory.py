"""Sizing by the memory account, block waste and lengths: numbers, limits, and silence where nothing would help."""

from __future__ import annotations

import pytest

from infradoc_rules.advise import ADVISERS, Advice
from infradoc_rules.advise.memory import account
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.model import Fact, Series

T0 = 1_700_000_000.0
TIMES = [T0 + second for second in range(61)]
MIB = 2**20
SIZED = {
    "gpu_memory_utilization": 0.97,
    "hint.device_memory_bytes": 1000 * MIB,
    "hint.activation_bytes": 200 * MIB,
    "hint.kv_bytes_per_token": 46080,
    "max_num_batched_tokens": 4096,
    "max_model_len": 1024,
    "block_size": 16,
}


def _advice(facts=None, series=None, system="infradoc", lang="en"):
    rows = []
    for (name, labels), values in (series or {}).items():
        points = [float(values)] * 61 if isinstance(values, int | float) else list(values)
        rows.append(Series(name, dict(labels), TIMES, points))
    known = [Fact(name, value, "api") for name, value in (facts or {}).items()]
    return Advice(MemoryFrame.build(rows, now=TIMES[-1], facts=known, system=system), {}, lang)


def _parts(weights=500, kv=400, other=70, activations=0):
    sizes = {"weights": weights, "kv": kv, "other": other, "graphs": 0, "activations": activations}
    rows = {("llm_device_memory_bytes", (("part", part),)): size * MIB for part, size in sizes.items()}
    return {**rows, ("llm_kv_pool_tokens", ()): kv * MIB // 46080}


def _lengths(prompt, output, each=2.0):
    """Steady observations of one prompt and one output length, `each` a second."""
    rows = {}
    for name, length in (("llm_request_prompt_tokens", prompt), ("llm_request_output_tokens", output)):
        counts = [each * second for second in range(61)]
        for bound in (length * 0.9, length, float("inf")):
            label = "+Inf" if bound == float("inf") else format(bound, "g")
            rows[f"{name}_bucket", (("le", label),)] = counts if bound >= length else [0.0] * 61
        rows[f"{name}_sum", ()] = [count * length for count in counts]
        rows[f"{name}_count", ()] = counts
    return rows


def test_the_account_leaves_out_what_a_running_step_holds():
    series = _parts()
    series["llm_device_memory_bytes", (("part", "other"),)] = [70 * MIB if t % 7 else 190 * MIB for t in range(61)]
    seen = account(_advice(SIZED, series))
    assert (seen.fixed, seen.room) == (570 * MIB, 30 * MIB)
    assert seen.missing == pytest.approx(200 * MIB)  # 230 with headroom, less the room


def test_no_account_without_a_device():
    assert account(_advice({}, _parts())) is None
    assert account(_advice(SIZED)) is None


def test_the_share_leaves_the_need_with_headroom():
    action = ADVISERS["lower_gpu_memory_utilization"](_advice(SIZED, _parts()))
    assert (action.from_value, action.to_value) == (0.97, 0.77)  # 1 - 200 * 1.15 / 1000
    assert action.flag == "--gpu-memory-utilization 0.77"
    assert action.live is True  # through a drain of the engine's own
    assert "200 MiB" in action.why


def test_no_share_that_holds_no_request():
    facts = {**SIZED, "hint.activation_bytes": 500 * MIB}
    assert ADVISERS["lower_gpu_memory_utilization"](_advice(facts, _parts())) is None


@pytest.mark.parametrize(
    ("system", "present", "target"),
    [
        ("vllm", 0.97, 0.9),
        ("vllm", 0.94, 0.89),
        ("sglang", 0.93, 0.85),
        ("infradoc", 0.97, 0.85),
        ("llamacpp", 1.0, None),
    ],
)
def test_the_share_where_no_account_is_shown(system, present, target):
    action = ADVISERS["lower_gpu_memory_utilization"](_advice({"gpu_memory_utilization": present}, system=system))
    assert (action.to_value if action else None) == target


def test_the_pool_gives_what_a_step_lacks():
    action = ADVISERS["lower_kv_capacity"](_advice(SIZED, _parts()))
    lacking = (200 * 1.15 - 30) * MIB / 46080
    assert action.from_value - action.to_value == pytest.approx(lacking, abs=17)
    assert action.to_value % 16 == 0


def test_the_pool_stays_where_nothing_lacks_or_one_request_would_not_fit():
    assert ADVISERS["lower_kv_capacity"](_advice(SIZED, _parts(kv=150))) is None
    assert ADVISERS["lower_kv_capacity"](_advice({**SIZED, "max_model_len": 8192}, _parts())) is None


@pytest.mark.parametrize(
    ("facts", "system", "target"),
    [
        (SIZED, "infradoc", 512),  # 4096 x 30 / 230
        ({"max_num_batched_tokens": 4096}, "infradoc", 2048),
        ({"max_num_batched_tokens": 300}, "vllm", 256),
        ({"max_num_batched_tokens": 256}, "vllm", None),
        ({"max_num_batched_tokens": 64}, "infradoc", None),
        ({}, "infradoc", None),
    ],
)
def test_the_step_shrinks_with_the_room(facts, system, target):
    action = ADVISERS["fit_step_to_memory"](_advice(facts, _parts(), system))
    assert (action.to_value if action else None) == target


@pytest.mark.parametrize(
    ("mean", "present", "system", "target"),
    [
        ((20, 30), 256, "infradoc", 8),
        ((200, 150), 256, "infradoc", 32),
        ((1000, 500), 256, "infradoc", 128),
        ((20, 30), 128, "vllm", 16),
        ((20, 30), 16, "vllm", None),
        ((3000, 500), 256, "infradoc", None),
        ((20, 30), 256, "llamacpp", None),
    ],
)
def test_blocks_waste_no_more_than_six_percent(mean, present, system, target):
    action = ADVISERS["lower_block_size"](_advice({"block_size": present}, _lengths(*mean), system))
    assert (action.to_value if action else None) == target


def test_leaked_blocks_come_back_by_an_order():
    leaked = {("llm_kv_blocks", (("state", "leaked"),)): 12}
    action = ADVISERS["defragment_kv"](_advice({"kv.leaked_owner": "cmpl-7", "block_size": 16}, leaked))
    assert (action.flag, action.live) == ("POST /admin/defragment", True)
    assert "192 tokens" in action.why and "cmpl-7" in action.why
    assert ADVISERS["defragment_kv"](_advice({}, {("llm_kv_blocks", (("state", "leaked"),)): 0})) is None
    assert ADVISERS["defragment_kv"](_advice({}, leaked, system="vllm")) is None


def test_a_host_that_swaps_needs_memory_not_a_smaller_batch():
    host = {("host_swap_used_bytes", ()): 2**30, ("host_memory_size_bytes", ()): 2**34, ("llm_requests_running", ()): 4}
    advice = _advice({"max_num_seqs": 16, "preemption_mode": "swap"}, host)
    for name in ("raise_kv_capacity_for_swap", "lower_max_num_seqs_for_swap", "recompute_instead_of_swap"):
        assert ADVISERS[name](advice) is None
    assert ADVISERS["raise_host_ram"](advice).to_value > 2**34
    assert ADVISERS["raise_host_ram"](_advice({}, {("llm_requests_swapped", ()): 3})) is None


def test_an_engine_that_recomputes_is_not_told_to():
    swapped = {("llm_requests_swapped", ()): 3}
    assert ADVISERS["recompute_instead_of_swap"](_advice({"preemption_mode": "recompute"}, swapped)) is None
    assert ADVISERS["recompute_instead_of_swap"](_advice({"preemption_mode": "swap"}, swapped)).to_value == "recompute"


@pytest.mark.parametrize(
    ("served", "present", "target"), [((40, 60), 2048, 256), ((700, 300), 2048, 1024), ((900, 700), 2048, None)]
)
def test_the_length_limit_follows_the_longest_served(served, present, target):
    facts = {"max_model_len": present, "kv_pool_tokens": 4096}
    action = ADVISERS["lower_max_model_len"](_advice(facts, _lengths(*served)))
    assert (action.to_value if action else None) == target


def test_freed_context_becomes_slots_on_llamacpp():
    facts = {"max_model_len": 16384, "max_num_seqs": 2}
    action = ADVISERS["lower_max_model_len"](_advice(facts, {("llm_context_longest_tokens", ()): 230}, "llamacpp"))
    assert action.flag == "--parallel 128 --ctx-size 32768"
    assert "128 then" in action.why


@pytest.mark.parametrize("name", ["pytorch_alloc_conf", "env.PYTORCH_CUDA_ALLOC_CONF"])
def test_segments_that_grow_are_not_advised_twice(name):
    assert ADVISERS["set_expandable_segments"](_advice({name: "expandable_segments:True"})) is None
    action = ADVISERS["set_expandable_segments"](_advice({name: "max_split_size_mb:128"}))
    assert action.flag == "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


@pytest.mark.parametrize(("origin", "advised"), [("flag", True), ("log", True), ("metrics", False)])
def test_a_pool_that_a_metrics_page_tells_was_not_set_by_hand(origin, advised):
    frame = MemoryFrame.build(facts=[Fact("kv_pool_tokens", 3072, origin)], system="vllm")
    assert (ADVISERS["lower_pool"](Advice(frame, {}, "en")) is not None) == advised
