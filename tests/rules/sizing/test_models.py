"""Parameters and KV bytes counted from shapes, against what publishers and engines state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_rules.sizing.config import model_of
from infradoc_rules.sizing.covered import unknown
from infradoc_rules.sizing.known import known_model, known_names, nearest_names
from infradoc_rules.sizing.model import SizingError

# Billions of parameters as the model cards state them.
PUBLISHED = {
    "Llama-2-7B": 6.74,
    "Llama-2-70B": 68.98,
    "Llama-3-8B": 8.03,
    "Llama-3.1-70B": 70.55,
    "Llama-3.1-405B": 405.85,
    "Llama-3.2-1B": 1.24,
    "Llama-3.2-3B": 3.21,
    "Qwen2.5-7B": 7.62,
    "Qwen2.5-32B": 32.76,
    "Qwen2.5-72B": 72.71,
    "Qwen2-57B-A14B": 57.41,
    "Qwen3-8B": 8.19,
    "Qwen3-30B-A3B": 30.53,
    "Qwen3-235B-A22B": 235.09,
    "Mistral-7B-v0.1": 7.24,
    "Mixtral-8x7B": 46.70,
    "Mixtral-8x22B": 140.62,
    "Gemma-2-9B": 9.24,
    "Gemma-2-27B": 27.23,
    "Gemma-3-1B": 1.00,
    "Gemma-3-27B": 27.43,
    "Phi-2": 2.78,
    "Phi-3-mini-4k": 3.82,
    "Phi-4": 14.66,
    "Phi-3.5-MoE": 41.87,
    "DeepSeek-V2": 235.74,
    "DeepSeek-V2-Lite": 15.71,
    "DeepSeek-V3": 671.03,
    "gpt-oss-20b": 20.91,
    "gpt-oss-120b": 116.83,
    "Llama-4-Scout": 108.64,
    "Llama-4-Maverick": 401.58,
    "SmolLM2-135M": 0.1345,
    "SmolLM2-1.7B": 1.711,
    "CodeLlama-34B": 33.74,
    "Yi-34B": 34.39,
    "Llama-3.2-11B-Vision": 10.67,
    "Llama-3.2-90B-Vision": 88.59,
    "Qwen2.5-VL-72B": 73.41,
    "Mistral-Small-3.1-24B": 24.01,
    "Mistral-Large": 122.61,
    "Gemma-7B": 8.54,
    "GLM-4-9B": 9.40,
    "Kimi-K2": 1026.4,
    "Qwen1.5-MoE-A2.7B": 14.32,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_ones(name):
    assert known_model(name).parameters / 1e9 == pytest.approx(PUBLISHED[name], rel=0.02)


@pytest.mark.parametrize(
    ("name", "item", "expected"),
    [
        ("SmolLM2-135M", 4, 46_080),
        ("Llama-3-8B", 2, 131_072),
        ("Qwen2.5-7B", 2, 57_344),
        ("Llama-3-70B", 2, 327_680),
        ("Llama-3-70B", 1, 163_840),
        ("DeepSeek-V3", 2, 61 * 576 * 2),  # the latent and the rotary part, one for all heads
    ],
)
def test_kv_bytes_of_a_token(name, item, expected):
    assert known_model(name).kv_bytes_per_token(item) == expected


@pytest.mark.parametrize(
    ("text", "name", "quantization"),
    [
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B", None),
        ("llama 3.1 8b", "Llama-3.1-8B", None),
        ("Qwen/Qwen2.5-32B-Instruct-AWQ", "Qwen2.5-32B", "awq"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "Qwen3-235B-A22B", "fp8"),
        ("/srv/models/Meta-Llama-3-70B-Instruct/", "Llama-3-70B", None),
        ("gpt_oss:20b", "gpt-oss-20b", "mxfp4"),
        ("deepseek-ai/DeepSeek-R1", "DeepSeek-R1", "fp8"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "Qwen2.5-7B", "int8"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "Qwen2.5-7B", "gptq"),
        ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "DeepSeek-R1-0528-Qwen3-8B", None),
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", "Llama-3.2-11B-Vision", None),
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", "Mistral-Small-3.2-24B", None),
        ("DeepSeek-R1-Distill-Llama-8B", "DeepSeek-R1-Distill-Llama-8B", None),
    ],
)
def test_loose_spelling(text, name, quantization):
    model = known_model(text)
    assert (model.name, model.quantization) == (name, quantization)


def test_a_distilled_model_is_not_the_large_one_and_a_miss_has_neighbours():
    assert known_model("DeepSeek-R1-Distill-Llama-8B").layers == 32
    assert known_model("Qwen2-57B") is None  # not Qwen2.5-7B
    assert known_model("") is None
    assert "Qwen3-30B-A3B" in nearest_names("qwen3:30b")


def test_every_known_name_finds_itself():
    assert len(known_names()) > 50
    for name in known_names():
        assert known_model(name).name == name


def _config(**more):
    base = {
        "model_type": "qwen2",
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "vocab_size": 100,
    }
    return base | more


def test_windows_by_layer_types_by_pattern_and_switched_off():
    types = ["sliding_attention", "full_attention"] * 2
    assert model_of(_config(sliding_window=8, layer_types=types), "m").windowed_layers == 2
    assert model_of(_config(sliding_window=8, sliding_window_pattern=4), "m").windowed_layers == 3
    assert model_of(_config(sliding_window=8, use_sliding_window=False), "m").windowed_layers == 0


def test_chunks_of_attention_are_windows():
    types = ["chunked_attention", "chunked_attention", "full_attention", "chunked_attention"]
    model = model_of(_config(attention_chunk_size=8192, layer_types=types), "m")
    assert (model.window, model.windowed_layers) == (8192, 3)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"layer_types": ["linear_attention", "full_attention"] * 2}, "'linear_attention'"),
        ({"full_attention_interval": 4}, "'full_attention_interval'"),
        ({"hybrid_override_pattern": "M-M*"}, "'hybrid_override_pattern'"),
    ],
)
def test_layers_that_keep_a_state_are_not_guessed_at(more, told):
    with pytest.raises(SizingError, match=told):
        model_of(_config(**more), "m")


def test_the_text_part_of_a_model_with_images():
    tower = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 128}
    model = model_of({"text_config": _config(), "vision_config": tower}, "m")
    assert model.layers == 4 and model.vision == 2 * (4 * 32 * 32 + 2 * 32 * 128)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4}}}}, "int4"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "unheard"}, None),
    ],
)
def test_quantization_of_a_checkpoint(given, expected):
    assert model_of(_config(quantization_config=given), "m").quantization == expected


@pytest.mark.parametrize(
    "bad", [{"hidden_size": None}, {"hidden_size": "64"}, {"vocab_size": -1}, {"num_hidden_layers": 0}]
)
def test_a_damaged_configuration_names_the_key(bad):
    with pytest.raises(SizingError, match=next(iter(bad))):
        model_of(_config(**bad), "m")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        "num_experts",
        "layer_types",
        "sliding_window",
        "kv_lora_rank",
        "quantization_config",
        "vision_config",
        "text_config",
        "mlp_only_layers",
        "decoder_sparse_step",
        "head_dim",
        "torch_dtype",
        "num_key_value_heads",
    ]
)


@given(st.dictionaries(KEYS, JSON, max_size=4))
def test_any_configuration_gives_a_model_or_one_error(more):
    try:
        assert model_of(_config(**more), "m").parameters > 0
    except SizingError as error:
        assert str(error)


def test_llama_4_by_its_own_file():
    """Its dense layers, its experts and its chunks have keys of their own."""
    text = {
        "model_type": "llama4_text", "hidden_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 40,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
        "num_local_experts": 128, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "vocab_size": 202048,
        "attention_chunk_size": 8192, "max_position_embeddings": 1048576,
    }  # fmt: skip
    vision = {"hidden_size": 1408, "num_hidden_layers": 34, "intermediate_size": 5632}
    raw = {"model_type": "llama4", "architectures": ["Llama4ForConditionalGeneration"], "text_config": text}
    assert model_of(raw | {"vision_config": vision}, "Llama-4-Maverick") == known_model("Llama-4-Maverick")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"model_type": "bert", "architectures": ["BertModel"]}, "is an encoder"),
        ({"model_type": "xlm-roberta"}, "is an encoder"),
        ({"model_type": "whisper", "is_encoder_decoder": True}, "is an encoder"),
        ({"model_type": "foo", "is_encoder_decoder": True}, "is an encoder"),
        ({"model_type": "mamba"}, "keep a state"),
        ({"model_type": "falcon_mamba"}, "keep a state"),
        ({"model_type": "foo", "architectures": ["FooModel"]}, "is no decoder"),
        ({"model_type": "foo", "architectures": ["FooForSequenceClassification"]}, "is no decoder"),
    ],
)
def test_what_is_no_decoder_is_not_reckoned_as_one(more, told):
    with pytest.raises(SizingError, match=rf"{told}.*does not cover"):
        model_of(_config(**more), "m")


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        ({"model_type": "foo"}, "foo"),
        ({"architectures": ["FooForCausalLM"]}, "FooForCausalLM"),
        ({"architectures": ["CohereForCausalLM"]}, None),
        ({"architectures": ["DeepseekV3ForCausalLM"]}, None),
        ({"model_type": "foo_vlm", "text_config": {"model_type": "qwen2"}}, None),
        ({"model_type": "qwen2_5_vl"}, None),
        ({"model_type": "qwen3_vl_moe"}, None),
        ({"model_type": "mistral"}, None),
        ({"model_type": 7, "architectures": 7}, None),
        ({}, None),
    ],
)
def test_an_unknown_kind_is_told_from_a_known_one(raw, found):
    assert unknown(raw) == found


def test_every_model_of_the_table_is_of_a_known_kind():
    kinds = {name: known_model(name).kind for name in known_names()}
    assert [name for name, kind in kinds.items() if kind and unknown({"model_type": kind})] == []
