"""The start-up memory account of a failed start: what is computed, what the log's figures replace, and the advice."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_rules.advise import Advice, actions_for
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries import account, summarise

GIB = 1 << 30
REFUSED = Event(
    "cuda_oom", 2, {"total_bytes": int(23.55 * GIB), "want_bytes": 500 << 20}, phase="load_weights", source="log:9"
)
START = Event("launched", 1)
CONFIG = {
    "model_type": "qwen2", "hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 40,
    "num_key_value_heads": 8, "intermediate_size": 27648, "vocab_size": 152064, "max_position_embeddings": 32768,
}  # fmt: skip


def told(**values: object) -> dict[str, Fact]:
    """Facts; a double underscore stands for a dot."""
    return {name: Fact(name, value, "flag") for name, value in ((k.replace("__", "."), v) for k, v in values.items())}


def account_of(*events: Event, system: str | None = "vllm", **values: object) -> dict[str, object]:
    """The account's facts, without their prefix."""
    found = summarise(list(events), told(**values), system)
    return {name[8:]: fact.value for name, fact in found.items() if name.startswith("account.")}


def advice(*events: Event, system: str = "vllm", lang: str = "en", **values: object) -> Advice:
    """What an adviser sees of these events and facts."""
    facts = summarise(list(events), told(**values), system).values()
    return Advice(MemoryFrame.build([], now=0.0, facts=facts, events=events, system=system), {}, lang)


def test_weights_that_no_single_card_holds():
    found = account_of(START, REFUSED, model_checkpoint="Qwen/Qwen2.5-32B-Instruct", max_model_len=8192)
    assert found["problem"] == "weights" and found["weights_fit"] is False and found["exact"] is False
    assert found["weights_bytes"] == found["weights_bytes_per_gpu"] == pytest.approx(61.0 * GIB, rel=0.01)
    assert found["weights_share"] == pytest.approx(2.59, rel=0.01)
    assert found["kv_bytes_per_token"] == 64 * 2 * 8 * 128 * 2 and found["kv_tokens"] == 0
    assert found["fit_tp"] == 4 and found["fit_tp_requests"] > 1  # two cards do not hold it either
    assert found["hopeless"] is False  # the log shows the failure; nothing has to be guessed


@pytest.mark.parametrize(
    ("count", "present", "expected"), [(None, 1, 4), (8, 1, 4), (2, 1, None), (1, 1, None), (4, 4, None)]
)
def test_the_host_has_no_more_devices_than_it_has(count, present, expected):
    facts = {"model_checkpoint": "Qwen/Qwen2.5-32B-Instruct", "max_model_len": 8192, "tensor_parallel_size": present}
    if count is not None:
        facts["gpu__count"] = count
    actions = actions_for(["raise_tensor_parallel"], advice(START, REFUSED, **facts))
    assert [action.to_value for action in actions] == ([] if expected is None else [expected])


def test_without_an_account_the_devices_are_doubled_within_the_host():
    (action,) = actions_for(["raise_tensor_parallel"], advice(START, REFUSED, tensor_parallel_size=2))
    assert action.to_value == 4
    assert actions_for(["raise_tensor_parallel"], advice(START, REFUSED, tensor_parallel_size=2, gpu__count=3)) == []
    assert actions_for(["raise_tensor_parallel"], advice(START, REFUSED, gpu__count=1)) == []


@pytest.mark.parametrize(
    ("lang", "words"),
    [
        ("en", ("66 GB", "25 GB on 1 GPU", "requests of 8,192 tokens at once")),
        ("zh", ("66 GB", "1 张 GPU 共有 25 GB", "8,192 token 的请求")),
    ],
)
def test_the_reason_has_the_figures(lang, words):
    seen = advice(START, REFUSED, lang=lang, model_checkpoint="Qwen/Qwen2.5-32B-Instruct", max_model_len=8192)
    (action,) = actions_for(["raise_tensor_parallel"], seen)
    assert all(word in action.why for word in words)
    (smaller,) = actions_for(["use_smaller_checkpoint"], seen)
    assert "18.0 GiB" in smaller.why and "61.0 GiB" in smaller.why


def test_printed_figures_win_over_computed_ones():
    events = [
        START,
        Event("model_loaded", 2, {"bytes": int(67.72 * GIB)}, source="log:2"),
        Event("kv_budget", 3, {"available_bytes": int(2.47 * GIB), "needed_bytes": int(4.88 * GIB), "fits": False}),
    ]
    facts = {
        "model_checkpoint": "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "quantization": "compressed-tensors",
        "gpu__name": "NVIDIA H100 80GB HBM3", "gpu__memory_bytes": 81559 << 20, "gpu__count": 1,
        "gpu_memory_utilization": 0.95, "max_model_len": 16000, "target__version": "0.11.0",
    }  # fmt: skip
    found = account_of(*events, **facts)
    assert found["exact"] is True and found["weights_bytes_per_gpu"] == int(67.72 * GIB)
    assert found["kv_bytes"] == int(2.47 * GIB) and found["needed_bytes"] == int(4.88 * GIB)
    assert found["problem"] == "kv_too_small" and found["concurrency"] == 0.51
    assert found["fit_max_len"] == 7936 and "fit_tp" not in found and "fit_share" not in found
    assert found["fit_kv8_requests"] == pytest.approx(1.0, abs=0.05)
    # Computed alone, the same launch leaves as much within a tenth of a GiB.
    assert account_of(START, **facts | {"gpu__count": 4})["kv_bytes"] == pytest.approx(2.47 * GIB, abs=0.2 * GIB)


def test_tokens_that_the_log_counted_say_what_a_token_takes():
    events = [
        START,
        Event("memory_account", 2, {"kv_bytes": 10 * GIB, "total_bytes": 48 * GIB}),
        Event("kv_allocated", 3, {"blocks": 4096}),
        Event("cuda_oom", 4, {"total_bytes": 48 * GIB}, phase="graph_capture"),
    ]
    found = account_of(*events, model_checkpoint="Qwen/Qwen2.5-32B-Instruct-AWQ", max_model_len=4096)
    assert found["kv_bytes_per_token"] == 10 * GIB // (4096 * 16)
    assert found["concurrency"] == 16.0


def test_weights_of_some_other_model_make_no_account():
    events = [START, Event("model_loaded", 2, {"bytes": 33 * GIB}), REFUSED]
    assert account_of(*events, model_checkpoint="meta-llama/Llama-3.1-8B-Instruct") == {}


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"model_checkpoint": "acme/unheard-of"},
        {"model_checkpoint": "Qwen/Qwen2.5-32B-Instruct", "quantization": "gguf"},  # of any width
        {"model_checkpoint": "Qwen/Qwen2.5-32B-Instruct", "weights_cpu_offload": 10 * GIB},
        {"model_checkpoint": "Qwen/Qwen2.5-32B-Instruct", "tensor_parallel_size": 7},
        {"model_checkpoint": "Qwen/Qwen3-30B-A3B", "data_parallel_size": 8},  # which may share the experts
        {"model__config": "{", "model_checkpoint": "/models/current"},
        {"model__config": json.dumps(CONFIG | {"hidden_size": "many"})},
    ],
)
def test_what_is_not_known_makes_no_account(facts):
    assert account_of(START, REFUSED, **facts) == {}


def test_a_start_that_served_and_other_engines_have_none():
    model = {"model_checkpoint": "Qwen/Qwen2.5-32B-Instruct"}
    assert account_of(START, REFUSED, Event("engine_ready", 3), **model) == {}
    assert account_of(START, REFUSED, system="llamacpp", **model) == {}
    whole = account_of(START, REFUSED, system="sglang", **model)
    assert whole["weights_share"] > 2 and whole["fit_tp"] == 4 and "kv_tokens" not in whole


def test_a_configuration_beside_the_log_names_the_shapes():
    found = account_of(START, REFUSED, model__config=json.dumps(CONFIG), model_checkpoint="/models/current")
    assert found["weights_bytes"] == pytest.approx(61.0 * GIB, rel=0.01) and found["fit_tp"] == 4


IDLE = Event("gpu_state", 1, {"gpu": 0, "used_bytes": 0})
EMPTY = {"gpu__name": "NVIDIA H100 80GB HBM3", "gpu__memory_bytes": 81559 << 20, "gpu__used_bytes": 0, "gpu__count": 2}
LARGE = {"model__name": "meta-llama/Llama-3.1-70B-Instruct", "max_model_len": 16384}


def test_a_launch_that_nothing_could_save():
    found = account_of(IDLE, **EMPTY, **LARGE)
    assert found["hopeless"] is True and found["fit_tp"] == 2


@pytest.mark.parametrize(
    ("events", "facts"),
    [
        (
            [IDLE],
            {"model__name": "meta-llama/Llama-3.1-8B-Instruct", "max_model_len": 131072},
        ),  # too long, not too large
        ([IDLE], {"model__name": "/models/Llama-3.1-70B-Instruct"}),  # a folder may hold anything
        ([IDLE], {"model__name": "Llama-3.1-70B"}),
        ([IDLE], LARGE | {"tensor_parallel_size": 2}),
        ([IDLE], LARGE | {"gpu__used_bytes": 70 * GIB}),  # something was loaded
        ([IDLE, Event("http_access", 2, {"code": 200, "path": "/health"})], LARGE),
        ([IDLE, Event("client_error", 2)], LARGE),
    ],
)
def test_nothing_is_hopeless_without_all_signs(events, facts):
    assert account_of(*events, **EMPTY | facts).get("hopeless") is not True


def test_a_running_servers_page_is_no_hopeless_launch():
    facts = told(**EMPTY, **LARGE) | {"kv_pool_tokens": Fact("kv_pool_tokens", 1000, "metrics")}
    found = {fact.name: fact.value for fact in account.summary([IDLE], facts, "vllm")}
    assert found["account.hopeless"] is False


def test_the_largest_batch_gives_way_where_its_logits_are_the_peak():
    refused = [START, Event("kv_no_memory", 2), Event("kv_budget", 3, {"available_bytes": -2_083_059_139})]
    facts = {"model_checkpoint": "openai/gpt-oss-120b", "target__version": "0.11.0", "gpu_memory_utilization": 0.9}
    seen = advice(*refused, **EMPTY | {"gpu__count": 1}, **facts)
    share, seqs = actions_for(["raise_share_for_kv", "lower_seqs_for_profile"], seen)
    assert share.to_value == 0.95 and "lower the length as well" in share.why
    assert (seqs.from_value, seqs.to_value) == (1024, 256) and "5.6 GiB" in seqs.why
    small = advice(*refused, **EMPTY, **facts, max_num_seqs=16)
    assert actions_for(["lower_seqs_for_profile"], small) == []  # a small batch frees too little


def test_graphs_and_the_driver_need_room_beside_the_share():
    oom = {
        "total_bytes": int(15.77 * GIB),
        "want_bytes": 26 << 20,
        "free_bytes": 11 << 20,
        "functions": "capture_model",
    }
    events = [
        START,
        Event("memory_account", 2, {"kv_bytes": int(4.56 * GIB), "weights_bytes": int(9.0 * GIB), "share": 0.95}),
        Event("cuda_oom", 3, oom, phase="graph_capture"),
    ]
    facts = {"model_checkpoint": "qwen2.5-32b-gptq-int4", "tensor_parallel_size": 2, "max_model_len": 8192}
    (action,) = actions_for(["lower_share_for_room"], advice(*events, **facts, gpu_memory_utilization=0.95))
    assert action.to_value == 0.88 and "longest requests at once" in action.why
    whole = advice(*events, **facts | {"max_model_len": 32768}, gpu_memory_utilization=0.95)
    (action,) = actions_for(["lower_share_for_room"], whole)
    assert "lower the length to that as well" in action.why


VALUES = st.one_of(st.none(), st.booleans(), st.integers(-(1 << 40), 1 << 60), st.floats(), st.text(max_size=12))
NAMES = st.sampled_from(
    [
        "model_checkpoint", "model.name", "model.config", "quantization", "tensor_parallel_size", "max_model_len",
        "pipeline_parallel_size", "gpu_memory_utilization", "kv_cache_dtype", "gpu.memory_bytes", "gpu.name",
        "gpu.count", "gpu.used_bytes", "max_num_seqs", "target.version", "kv.available_bytes", "kv.needed_bytes",
        "enforce_eager", "weights_cpu_offload", "model.dtype",
    ]
)  # fmt: skip


@given(st.dictionaries(NAMES, VALUES, max_size=8), st.sampled_from(["vllm", "sglang", None]))
def test_no_facts_break_the_account(values, system):
    facts = {name: Fact(name, value, "flag") for name, value in values.items() if value is not None}
    facts.setdefault("model.name", Fact("model.name", "Qwen/Qwen3-8B", "flag"))
    facts.setdefault("gpu.name", Fact("gpu.name", "NVIDIA L4", "file"))
    for fact in account.summary([START, REFUSED], facts, system):
        assert fact.name.startswith("account.") and fact.value is not None
