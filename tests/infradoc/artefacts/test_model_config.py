"""A model's config.json: found wherever it stands in a text, and read into the shapes of an account."""

from __future__ import annotations

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.kinds.model_config import ModelConfigKind
from infradoc.artefacts.split import split
from infradoc_rules.sizing.config import model_of

KIND = ModelConfigKind()
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192,
    "vocab_size": 128256, "tie_word_embeddings": True, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
    "auto_map": {"a": "b" * 99},
}  # fmt: skip
PARTS = {"model_type": "mllama", "text_config": CONFIG, "vision_config": {"hidden_size": 64, "num_hidden_layers": 2}}


@pytest.fixture(scope="module")
def read(read_whole):
    return partial(read_whole, KIND, "config.json")


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("raw", [CONFIG, PARTS])
def test_shapes_are_kept_and_the_rest_left_out(raw, indent, read):
    (fact,) = read(json.dumps(raw, indent=indent).splitlines()).facts
    assert (fact.name, fact.origin, fact.source) == ("model.config", "file", "config.json:1")
    assert model_of(json.loads(fact.value), "m") == model_of(raw, "m")
    assert "auto_map" not in fact.value


def test_it_is_found_between_a_command_and_a_log():
    config = json.dumps(CONFIG, indent=2).splitlines()
    text = ["vllm serve /models/current --port 8000", *config, "INFO 10-06 12:00:00 [core.py:74] Initializing"]
    kinds = [(segment.kind, segment.first_line) for segment in split("paste.txt", text)]
    assert ("model_config", 2) in kinds


@pytest.mark.parametrize(
    "text",
    [
        '{"model_type": "llama"}',
        '{"num_hidden_layers": 16}',
        '{"model_type": "llama", "num_hidden_layers": "16"}',
        '{"model_type": "llama", "num_hidden_layers": 16',
        '["num_hidden_layers"]',
    ],
)
def test_what_is_no_configuration_is_left_to_others(text):
    assert KIND.spans(text.splitlines()) == []


@given(
    st.lists(
        st.sampled_from(["{", "}", '"num_hidden_layers": 3,', '"model_type": "x"', "[", "INFO x", ""]), max_size=12
    )
)
def test_no_text_breaks_it(lines):
    for start, end in KIND.spans(lines):
        assert 0 <= start < end <= len(lines)
