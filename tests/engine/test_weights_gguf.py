"""GGUF files, sound and hostile."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infradoc_engine.weights import ModelFileError, open_model

MAGIC = b"GGUF"


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return u64(len(raw)) + raw


def header(tensors: int = 0, pairs: int = 0, version: int = 3) -> bytes:
    return MAGIC + u32(version) + u64(tensors) + u64(pairs)


def refusal(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        open_model(path)
    return one_sentence(str(caught.value), path)


def one_sentence(message: str, path: Path) -> str:
    assert str(path) in message and message.endswith(".") and "\n" not in message and "Traceback" not in message
    assert ";" in message  # says what to do next
    return message


def test_real_model(model_path: Path) -> None:
    files = open_model(model_path)
    config = files.config
    assert (config.num_layers, config.hidden_size, config.num_heads, config.num_kv_heads) == (30, 576, 9, 3)
    assert (config.head_dim, config.vocab_size, config.rope_theta, config.max_positions) == (64, 49152, 100000.0, 8192)
    assert config.tie_word_embeddings and config.quantization == "Q4_1" and config.eos_token_ids == (2,)
    assert files.chat_template and "<|im_start|>" in files.chat_template


def test_dequantises_as_the_gguf_package_reads(model_path: Path) -> None:
    """Ours against the package's own reader, on quantised, embedding and plain tensors."""
    theirs = {t.name: t for t in gguf.GGUFReader(model_path).tensors}
    wanted = {
        "embed_tokens": "token_embd.weight",
        "layers.3.down_proj": "blk.3.ffn_down.weight",
        "layers.29.mlp_norm": "blk.29.ffn_norm.weight",
        "layers.0.v_proj": "blk.0.attn_v.weight",
    }
    seen = set()
    for name, tensor in open_model(model_path).tensors():
        assert tensor.dtype == torch.float32
        if name in wanted:
            stored = theirs[wanted[name]]
            expected = gguf.quants.dequantize(stored.data, stored.tensor_type)
            assert np.array_equal(tensor.numpy(), expected.reshape(tensor.shape))
            seen.add(name)
    assert seen == set(wanted)


def test_yields_every_tensor_once(tiny_gguf: Callable[..., Path]) -> None:
    names = [name for name, _ in open_model(tiny_gguf()).tensors()]
    assert len(names) == len(set(names)) == 2 + 2 * 9


def test_not_gguf(tmp_path: Path) -> None:
    assert "offset 0" in refusal(tmp_path / "x.gguf", b"<html>not found</html>")


def test_empty_file(tmp_path: Path) -> None:
    assert "empty" in refusal(tmp_path / "x.gguf", b"")


def test_missing_path(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"does not exist.*model get"):
        open_model(tmp_path / "nothing.gguf")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (MAGIC, "the version needs 4 bytes and 0 bytes are left"),
        (header(version=1), "version 1"),
        (MAGIC + b"\x00\x00\x00\x03" + u64(0) * 2, "big-endian"),
        (header(pairs=2**63), "table of 9223372036854775808 keys"),
        (header(tensors=2**62), "table of 4611686018427387904 tensors"),
        (header(pairs=1) + u64(2**60) + b"x" * 20, "a key name claims"),
        (header(pairs=1) + text("k") + u32(8) + u64(2**61) + b"x", "key k needs 2 EiB and 1 byte are left"),
        (header(pairs=1) + text("k") + u32(9) + u32(8) + u64(2**61), "with 2305843009213693952 strings"),
        (header(pairs=1) + text("k") + u32(9) + u32(4) + u64(2**62), "with 4611686018427387904 items"),
        (header(pairs=1) + text("k") + u32(9) + u32(8) + u64(1) + u64(99), "string 0 claims 99 bytes"),
        (header(pairs=1) + text("k") + u32(9) + u32(9) + u64(1) + b"x" * 20, "array of the unsupported value type 9"),
        (header(pairs=1) + text("k") + u32(77) + b"x" * 20, "unknown value type 77"),
        (header(pairs=1) + text(b"\xff\xfe") + u32(4) + u32(1), "not UTF-8"),
        (header(pairs=2) + 2 * (text("twice") + u32(4) + u32(1)), "key twice occurs twice"),
        (header(pairs=1) + text("general.alignment") + u32(4) + u32(33), "general.alignment is 33"),
        (header(pairs=1) + text("general.alignment") + u32(4) + u32(0), "general.alignment is 0"),
    ],
)
def test_hostile_headers(tmp_path: Path, content: bytes, says: str) -> None:
    message = refusal(tmp_path / "x.gguf", content)
    assert says in message and "offset" in message


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (text("t") + u32(5) + u64(1) * 5 + u32(0) + u64(0), "5 dimensions"),
        (text("t") + u32(0) + u32(0) + u64(0) + b"x" * 16, "0 dimensions"),
        (
            text("t") + u32(2) + u64(2**40) + u64(2**40) + u32(0) + u64(0),
            "of at least 4 YiB",
        ),
        (text("t") + u32(1) + u64(0) + u32(0) + u64(0), "does not fill blocks"),
        (text("t") + u32(1) + u64(31) + u32(3) + u64(0), "blocks of 32"),
        (text("t") + u32(1) + u64(32) + u32(999) + u64(0), "unknown type 999"),
        (text("t") + u32(1) + u64(1) + u32(0) + u64(2**64 - 32), "cut short"),
        (text("t") + u32(1) + u64(1) + u32(0) + u64(7), "not a multiple of 32"),
    ],
)
def test_hostile_tensor_table(tmp_path: Path, entry: bytes, says: str) -> None:
    message = refusal(tmp_path / "x.gguf", header(tensors=1) + entry + b"\0" * 64)
    assert says in message and "tensor t" in message


def test_every_truncation_of_a_sound_file_is_refused(tiny_gguf: Callable[..., Path]) -> None:
    path = tiny_gguf()
    whole = path.read_bytes()
    for size in [*range(1, 2000, 61), *range(2000, len(whole), 997), len(whole) - 1]:
        refusal(path, whole[:size])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flips=st.lists(st.tuples(st.integers(0, 12_000), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_headers_never_crash(tiny_gguf: Callable[..., Path], flips: list[tuple[int, int]]) -> None:
    """Whatever the damage: a clear refusal, or a model that still reads."""
    path = tiny_gguf()
    content = bytearray(path.read_bytes())
    for at, value in flips:
        content[at % len(content)] = value
    path.write_bytes(content)
    try:
        files = open_model(path)
        files.tokenizer()
        for _ in files.tensors():
            pass
    except ModelFileError as error:
        one_sentence(str(error), path)


def test_unknown_architecture(tiny_gguf: Callable[..., Path]) -> None:
    path = tiny_gguf(arch="mamba")
    with pytest.raises(ModelFileError, match=r"'mamba' is not known \(known: llama\)") as caught:
        open_model(path)
    one_sentence(str(caught.value), path)


def test_missing_tensor(tiny_gguf: Callable[..., Path]) -> None:
    path = tiny_gguf(skip=["blk.1.ffn_up.weight"])
    with pytest.raises(ModelFileError, match=r"layers\.1\.up_proj") as caught:
        open_model(path)
    one_sentence(str(caught.value), path)


def test_wrong_shape_and_unknown_tensor(tiny_gguf: Callable[..., Path]) -> None:
    def wrong(writer: Any) -> None:
        writer.add_tensor("blk.0.attn_q.weight", np.zeros((32, 16), np.float32))

    with pytest.raises(ModelFileError, match=r"shape \(32, 16\) where .*\(32, 32\) \(tensor blk\.0\.attn_q\.weight\)"):
        open_model(tiny_gguf(skip=["blk.0.attn_q.weight"], edit=wrong))

    def bias(writer: Any) -> None:
        writer.add_tensor("blk.0.attn_q.bias", np.zeros(32, np.float32))

    with pytest.raises(ModelFileError, match=r"a Llama model does not have \(tensor blk\.0\.attn_q\.bias\)"):
        open_model(tiny_gguf(seed=1, edit=bias))


def test_no_tokenizer(tiny_gguf: Callable[..., Path]) -> None:
    path = tiny_gguf(tokenizer=False)
    with pytest.raises(ModelFileError, match=r"is missing in it \(key tokenizer\.ggml\.tokens\)") as caught:
        open_model(path)
    one_sentence(str(caught.value), path)


def test_scaled_rope_is_refused_not_ignored(tiny_gguf: Callable[..., Path]) -> None:
    def scale(writer: Any) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)

    with pytest.raises(ModelFileError, match="scaled rotary positions"):
        open_model(tiny_gguf(edit=scale))


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"tokenizer_model": "llama"}, "'llama' is not known"),
        ({"pre": "martian"}, "pre-tokenizer 'martian' is not known"),
        ({"merges": ["a", "b"]}, "merge 'a' does not join"),
        ({"merges": ["zz q"]}, "merge 'zz q' does not join"),
        ({"tokens": ["a"] * 260}, "two tokens have the same text"),
        ({"types": [1, 2, 3]}, "3 token types for 260 tokens"),
    ],
)
def test_bad_tokenizers(tiny_gguf: Callable[..., Path], keys: dict[str, Any], says: str) -> None:
    path = tiny_gguf(**keys)
    with pytest.raises(ModelFileError, match=says) as caught:
        open_model(path).tokenizer()
    one_sentence(str(caught.value), path)


def test_infinite_figures_are_refused(tiny_gguf: Callable[..., Path]) -> None:
    path = tiny_gguf()
    key = b"llama.rope.freq_base" + struct.pack("<I", 6)
    content = path.read_bytes()
    at = content.index(key) + len(key)
    path.write_bytes(content[:at] + struct.pack("<f", float("inf")) + content[at + 4 :])
    with pytest.raises(ModelFileError, match="must be positive and finite"):
        open_model(path)
