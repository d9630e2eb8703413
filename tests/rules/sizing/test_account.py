"""The account against start-up lines that vLLM printed, and what it proposes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infradoc_rules.sizing.account import CONTEXT, ERRORS, account
from infradoc_rules.sizing.gpus import gpu_named
from infradoc_rules.sizing.known import known_model
from infradoc_rules.sizing.model import SizingError
from infradoc_rules.sizing.nearest import nearest
from infradoc_rules.sizing.parts import weight_bytes
from infradoc_rules.sizing.setting import Setting
from infradoc_rules.units import GIB

H100 = gpu_named("H100")


# "Model loading took N GiB", "Loading model weights took N GB" (which are GiB too).
@pytest.mark.parametrize(
    ("name", "gpus", "printed"),
    [
        ("openai/gpt-oss-120b", 1, 65.97),
        ("openai/gpt-oss-120b", 2, 32.81),
        ("meta-llama/Llama-3.2-1B-Instruct", 1, 2.3185),
        ("Llama-3.1-8B-Instruct", 1, 14.9888),
        ("gradientai/Llama-3-8B-Instruct-Gradient-1048k", 1, 15.2075),
        ("meta-llama/Meta-Llama-3-70B-Instruct", 4, 32.8657),
        ("Qwen2.5-32B-Instruct-AWQ", 2, 9.0926),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", 1, 2.0512),
    ],
)
def test_weights_as_printed(name, gpus, printed):
    weights = weight_bytes(known_model(name), Setting(H100, tensor_parallel=gpus)) / GIB
    low, high = ERRORS["weights"]
    assert weights * (1 - low) <= printed <= weights * (1 + high)


# (model, setting, "Available KV cache memory", "needed" of a longest request; GiB)
@pytest.mark.parametrize(
    ("setting", "available", "needed"),
    [
        (Setting(H100, version=(0, 11)), -1.94, None),
        (Setting(H100, fraction=0.95, max_num_batched_tokens=1024, version=(0, 11)), 1.68, 4.52),
        (Setting(H100, fraction=0.9, tensor_parallel=2, version=(0, 20)), 33.10, 33.10 / 14.57),
    ],
)
def test_kv_cache_of_gpt_oss_as_printed(setting, available, needed):
    made = account(known_model("gpt-oss-120b"), setting)
    assert made.kv_low <= available * GIB <= made.kv_high
    assert made.kv / GIB == pytest.approx(available, abs=0.3)
    if needed is not None:
        low, high = ERRORS["kv"]
        assert made.needed * (1 - low) <= needed * GIB <= made.needed * (1 + high)


def test_tokens_of_the_pool_as_printed():
    """0.6.5 on one H100: 16 x 138,280 tokens."""
    made = account(known_model("Llama-3.2-1B"), Setting(H100, version=(0, 6, 5)))
    assert made.tokens == pytest.approx(138_280 * 16, rel=0.002)
    assert made.problem == "" and made.requests == pytest.approx(16.88, rel=0.002)


def test_each_part_can_be_what_does_not_fit():
    model, l4 = known_model("Llama-3.1-8B"), gpu_named("L4")
    assert account(known_model("Llama-3.1-70B"), Setting(H100)).problem == "weights"
    assert account(known_model("gpt-oss-120b"), Setting(H100, version=(0, 11))).problem == "no_kv"
    assert account(model, Setting(l4, max_model_len=131_072)).problem == "kv_too_small"
    assert account(model, Setting(l4, max_model_len=2048, fraction=0.99)).problem == "beyond_fraction"
    assert account(model, Setting(l4, max_model_len=2048)).problem == ""


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize(
    "name", ["Llama-3.1-70B", "Llama-3.1-8B", "gpt-oss-120b", "gemma-3-27b", "Qwen3-30B-A3B", "Phi-2"]
)
@pytest.mark.parametrize("gpu", ["H100", "L4", "A100 40GB", "4090"])
@pytest.mark.parametrize("fraction", [0.5, 0.9, 0.99])
def test_what_is_proposed_fits(name, gpu, gpus, fraction):
    model, setting = known_model(name), Setting(gpu_named(gpu), tensor_parallel=gpus, fraction=fraction)
    if account(model, setting).problem:
        for one in nearest(model, setting):
            assert one.changed and not account(model, one.setting).problem and one.account.requests >= 1


def test_changes_go_the_right_way():
    model = known_model("Llama-3.1-70B")
    setting = Setting(H100, tensor_parallel=2, max_model_len=32_768, max_num_seqs=256, version=(0, 11))
    changes = {option: value for one in nearest(model, setting) for option, value in one.changed}
    assert 0.9 < float(changes["gpu_memory_utilization"]) <= 0.95
    assert int(changes["max_model_len"]) < 32_768
    assert changes["kv_cache_dtype"] == "fp8" and changes["tensor_parallel_size"] == "4"
    less = nearest(known_model("Llama-3.1-8B"), Setting(gpu_named("L4"), max_model_len=2048, fraction=0.99))
    assert float(dict(less[0].changed)["gpu_memory_utilization"]) < 0.99


def test_fewer_requests_give_back_what_their_logits_took():
    model, setting = known_model("gpt-oss-120b"), Setting(H100, max_model_len=32_768, version=(0, 11))
    found = {option: value for one in nearest(model, setting) for option, value in one.changed}
    assert found["max_num_seqs"] == "512" and "enforce_eager" not in found  # the graphs are beside the fraction
    tight = Setting(gpu_named("4090"), max_model_len=16_384, fraction=0.85, version=(0, 21))
    changes = [dict(one.changed) for one in nearest(known_model("Qwen3-8B"), tight)]
    assert {"enforce_eager": ""} in changes


def test_graphs_are_inside_the_fraction_from_0_21_on():
    model, setting = known_model("Qwen3-8B"), Setting(gpu_named("4090"), max_model_len=8192, fraction=0.9)
    old, new = (account(model, replace(setting, version=version)) for version in ((0, 20), (0, 21)))
    assert old.kv - new.kv == new.graphs == old.graphs > 0
    assert old.beyond == CONTEXT + old.graphs and new.beyond == CONTEXT
    eager = account(model, replace(setting, version=(0, 21), eager=True))
    assert eager.graphs == 0 and eager.kv == old.kv


def test_a_four_bit_checkpoint_is_not_quantized_again():
    model = known_model("Qwen2.5-72B-Instruct-AWQ")
    options = {option for one in nearest(model, Setting(gpu_named("L4"))) for option, _ in one.changed}
    assert "quantization" not in options


def test_data_types():
    model, setting = known_model("SmolLM2-135M"), Setting(H100)
    wide, narrow = account(model, replace(setting, dtype="float32")), account(model, setting)
    assert wide.kv_per_token == 46_080 == 2 * narrow.kv_per_token
    assert wide.weights == pytest.approx(2 * narrow.weights, rel=0.001)
    assert account(model, replace(setting, kv_dtype="fp8")).kv_per_token == 11_520
    # An engine loads a checkpoint of 32 bits in 16, unless it is told otherwise.
    assert account(replace(model, dtype="float32"), setting).kv_per_token == 23_040


def test_a_head_is_not_cut_and_a_latent_is_on_each_gpu():
    qwen, deepseek = known_model("Qwen2.5-7B"), known_model("DeepSeek-V3")
    assert account(qwen, Setting(H100, tensor_parallel=4)).kv_per_token == 57_344 // 4
    assert account(known_model("Llama-3-8B"), Setting(H100, tensor_parallel=16)).kv_per_token == 131_072 // 8
    one, eight = (account(deepseek, Setting(H100, tensor_parallel=n)).kv_per_token for n in (1, 8))
    assert one == eight == 70_272


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"tensor_parallel": 3}, "cannot be shared by 3"),
        ({"pipeline_parallel": 33}, "33 stages"),
        ({"fraction": 1.5}, "outside 0 to 1"),
        ({"dtype": "int3"}, "'int3'"),
        ({"kv_dtype": "int3"}, "'int3'"),
        ({"quantization": "zip"}, "'zip'"),
    ],
)
def test_what_no_engine_would_start_with(change, told):
    with pytest.raises(SizingError, match=told):
        account(known_model("Llama-3-8B"), replace(Setting(H100), **change))


def test_a_model_that_tells_no_length_needs_one():
    model = replace(known_model("Llama-3-8B"), max_positions=0)
    with pytest.raises(SizingError, match="max_model_len"):
        account(model, Setting(H100))
    assert account(model, Setting(H100, max_model_len=4096)).problem == ""
