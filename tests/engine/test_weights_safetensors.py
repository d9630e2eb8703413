"""Model folders, sound and broken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from infradoc_engine.weights import ModelFileError, open_model


def refusal(folder: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        open_model(folder).tokenizer()
    message = str(caught.value)
    assert str(folder) in message and message.endswith(".") and "\n" not in message and ";" in message
    return message


def test_same_tensors_as_the_gguf_of_the_same_model(
    tiny_gguf: Callable[..., Path], tiny_folder: Callable[..., Path]
) -> None:
    """Also shows that the order of q and k rows in GGUF is undone."""
    first, second = (dict(open_model(path).tensors()) for path in (tiny_gguf(), tiny_folder()))
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def test_config_agrees_with_gguf(tiny_gguf: Callable[..., Path], tiny_folder: Callable[..., Path]) -> None:
    first, second = open_model(tiny_gguf()).config, open_model(tiny_folder()).config
    for key in ("hidden_size", "num_layers", "num_heads", "num_kv_heads", "head_dim", "vocab_size", "rope_theta"):
        assert getattr(first, key) == getattr(second, key), key
    assert first.eos_token_ids == second.eos_token_ids == (1,)


def test_stored_type_and_template(tiny_folder: Callable[..., Path]) -> None:
    files = open_model(tiny_folder(dtype=torch.bfloat16))
    assert {tensor.dtype for _, tensor in files.tensors()} == {torch.bfloat16}
    assert files.chat_template == "{{ messages[0]['content'] }}"


def test_template_file_wins(tiny_folder: Callable[..., Path]) -> None:
    folder = tiny_folder()
    (folder / "chat_template.jinja").write_text("from the file")
    assert open_model(folder).chat_template == "from the file"


def test_newer_rope_parameters(tiny_folder: Callable[..., Path]) -> None:
    rope = {"rope_theta": 5000.0, "rope_type": "default"}
    assert open_model(tiny_folder(rope_parameters=rope)).config.rope_theta == 5000.0


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_missing_file(tiny_folder: Callable[..., Path], name: str) -> None:
    folder = tiny_folder()
    (folder / name).unlink()
    assert name.replace("model", "*") in refusal(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"\xff\xfe\x00", b"[" * 100_000, b"\xff" * 64])
def test_damaged_file(tiny_folder: Callable[..., Path], name: str, content: bytes) -> None:
    folder = tiny_folder()
    (folder / name).write_bytes(content)
    assert name in refusal(folder)


def test_truncated_weights(tiny_folder: Callable[..., Path]) -> None:
    folder = tiny_folder()
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    assert "model.safetensors" in refusal(folder)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "gpt_neox"}, r"'gpt_neox' is not known (known: llama)"),
        ({"model_type": None}, "'None' is not known"),
        ({"hidden_size": "32"}, "a setting is missing or no number (key hidden_size)"),
        ({"hidden_size": 64}, "shape (260, 32) where config.json needs (260, 64)"),
        ({"num_attention_heads": 0}, "num_heads is 0"),
        ({"rms_norm_eps": float("inf")}, "key rms_norm_eps"),
        ({"rope_theta": "big"}, "key rope_theta"),
        ({"num_key_value_heads": 3}, "not a multiple of num_kv_heads 3"),
        ({"num_hidden_layers": 10**12}, "num_layers is 1000000000000"),
        ({"num_hidden_layers": 3}, "9 of the model's weight tensors are missing (first of them: layers.2.attn_norm)"),
        ({"tie_word_embeddings": False}, "1 of the model's weight tensors is missing (first of them: lm_head)"),
        ({"attention_bias": True}, "key attention_bias"),
        ({"hidden_act": "gelu"}, "key hidden_act"),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, "key rope_scaling"),
        ({"quantization_config": {"quant_method": "gptq"}}, "key quantization_config"),
    ],
)
def test_configs_that_do_not_fit(tiny_folder: Callable[..., Path], config: dict[str, Any], says: str) -> None:
    assert says in refusal(tiny_folder(**config))
