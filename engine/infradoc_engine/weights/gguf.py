"""A GGUF file as model files: config, weights dequantised tensor by tensor, tokenizer."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType, LlamaFileType
from gguf.quants import dequantize
from tokenizers import Tokenizer

from infradoc_engine.tokenizer import build_bpe
from infradoc_engine.weights.config import KNOWN_ARCHITECTURES, ModelConfig, expected_shapes, unknown_architecture
from infradoc_engine.weights.errors import bad_file, missing_weights
from infradoc_engine.weights.gguf_header import GGUFHeader, TensorInfo, read_header

_CONVERT = "convert the model again with a current converter"
_LAYER_NAMES = {
    "attn_norm": "attn_norm",
    "attn_q": "q_proj",
    "attn_k": "k_proj",
    "attn_v": "v_proj",
    "attn_output": "o_proj",
    "ffn_norm": "mlp_norm",
    "ffn_gate": "gate_proj",
    "ffn_up": "up_proj",
    "ffn_down": "down_proj",
}
_TOP_NAMES = {"token_embd.weight": "embed_tokens", "output_norm.weight": "norm", "output.weight": "lm_head"}


class GGUFModel:
    """An open GGUF file. The tensor data stays mapped and shared with the page cache."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._header = read_header(path, _map(path))
        # A plain view: the memmap class would slow each of the many small operations of dequantising.
        self._data: Any = np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
        self.config = _config(self._header)
        self.chat_template = _optional_str(self._header.metadata.get("tokenizer.chat_template"))
        self._names = _canonical_names(self._header, self.config)
        self._tokenizer: Tokenizer | None = None

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Canonical name and float32 tensor, one at a time; nothing is kept, so the peak is one tensor."""
        for info in self._header.tensors.values():
            name = self._names[info.name]
            tensor = torch.from_numpy(self._dequantize(info))
            if name.endswith("q_proj"):
                tensor = _unpermute(tensor, self.config.num_heads)
            elif name.endswith("k_proj"):
                tensor = _unpermute(tensor, self.config.num_kv_heads)
            yield name, tensor

    def _dequantize(self, info: TensorInfo) -> Any:
        raw = self._data[info.offset : info.offset + info.num_bytes]
        if info.type == GGMLQuantizationType.F32:
            return np.array(raw.view("<f4").reshape(info.shape), dtype=np.float32)  # a copy: the map is read-only
        if info.type == GGMLQuantizationType.F16:
            return raw.view("<f2").reshape(info.shape).astype(np.float32)
        try:
            return dequantize(raw.reshape(*info.shape[:-1], -1), info.type)
        except NotImplementedError:
            raise bad_file(
                self.path,
                f"tensor {info.name}",
                f"its weights are stored as {info.type.name}, which cannot be dequantised here",
                "use a file in Q4_1 or Q8_0",
            ) from None

    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the file describes (a shared instance). Raises ModelFileError."""
        if self._tokenizer is None:
            self._tokenizer = _tokenizer(self._header)
        return self._tokenizer

    def tokenizer_json(self) -> str:
        """The tokenizer in the format of the tokenizers library, for processes started by spawn."""
        return str(self.tokenizer().to_str())


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise bad_file(path, "", "the file is empty", "download it again") from None
    except OSError as error:
        raise bad_file(
            path, "", f"it cannot be opened: {error.strerror or error}", "check the path and its rights"
        ) from None


def _optional_str(value: object) -> str | None:
    return value if isinstance(value, str) else None


class _Metadata:
    """Typed look-ups; a missing or ill-typed key is one sentence."""

    def __init__(self, header: GGUFHeader) -> None:
        self._header = header

    def get(self, key: str, kinds: tuple[type, ...], default: object = ...) -> Any:
        value = self._header.metadata.get(key, default)
        if value is ...:
            raise bad_file(
                self._header.path, f"key {key}", "a setting that the engine needs is missing in it", _CONVERT
            )
        if value is not default and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
            what = f"one of its settings has a value of the wrong type, {str(value)[:40]!r}"
            raise bad_file(self._header.path, f"key {key}", what, _CONVERT)
        return value


def _config(header: GGUFHeader) -> ModelConfig:
    meta = _Metadata(header)
    arch: str = meta.get("general.architecture", (str,))
    if arch not in KNOWN_ARCHITECTURES:
        raise bad_file(header.path, "", unknown_architecture(arch), "pick another model")
    if "rope_freqs.weight" in header.tensors or meta.get(f"{arch}.rope.scaling.type", (str,), "none") != "none":
        what = "it extends its context by scaled rotary positions (RoPE scaling), which are not supported"
        raise bad_file(header.path, "", what, "pick another model")
    heads: int = meta.get(f"{arch}.attention.head_count", (int,))
    hidden: int = meta.get(f"{arch}.embedding_length", (int,))
    head_dim: int = meta.get(f"{arch}.attention.key_length", (int,), hidden // max(heads, 1))
    tokens: list[str] = meta.get("tokenizer.ggml.tokens", (list,))
    embedding = header.tensors.get("token_embd.weight")
    config = ModelConfig(
        architecture=arch,
        hidden_size=hidden,
        num_layers=meta.get(f"{arch}.block_count", (int,)),
        num_heads=heads,
        num_kv_heads=meta.get(f"{arch}.attention.head_count_kv", (int,), heads),
        head_dim=head_dim,
        intermediate_size=meta.get(f"{arch}.feed_forward_length", (int,)),
        vocab_size=embedding.shape[0] if embedding else len(tokens),
        rope_theta=float(meta.get(f"{arch}.rope.freq_base", (float, int), 10000.0)),
        max_positions=meta.get(f"{arch}.context_length", (int,)),
        rms_norm_eps=float(meta.get(f"{arch}.attention.layer_norm_rms_epsilon", (float,))),
        tie_word_embeddings="output.weight" not in header.tensors,
        bos_token_id=meta.get("tokenizer.ggml.bos_token_id", (int,), None),
        eos_token_ids=_eos_ids(meta),
        quantization=_quantization(meta.get("general.file_type", (int,), None)),
        name=str(meta.get("general.name", (str,), header.path.stem)),
    )
    problem = config.problem()
    rotary: int = meta.get(f"{arch}.rope.dimension_count", (int,), head_dim)
    if problem is None and rotary != head_dim:
        problem = f"only {rotary} of {head_dim} head dimensions are rotary"
    if problem is None and len(tokens) > config.vocab_size:
        problem = f"{len(tokens)} tokens but only {config.vocab_size} embeddings"
    if problem:
        raise bad_file(header.path, "", f"its settings cannot be right: {problem}", _CONVERT)
    return config


def _eos_ids(meta: _Metadata) -> tuple[int, ...]:
    keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    ids = [meta.get(key, (int,), None) for key in keys]
    return tuple(dict.fromkeys(i for i in ids if i is not None))


def _quantization(file_type: int | None) -> str | None:
    try:
        name = LlamaFileType(file_type).name if file_type is not None else ""
    except ValueError:
        name = ""
    name = name.removeprefix("MOSTLY_").removeprefix("ALL_")
    return None if name in ("", "F32", "F16", "BF16") else name


def _canonical_names(header: GGUFHeader, config: ModelConfig) -> dict[str, str]:
    """GGUF name -> canonical name, with shapes checked and nothing missing."""
    wanted = expected_shapes(config)
    names: dict[str, str] = {}
    for info in header.tensors.values():
        name = _canonical_name(info.name)
        if name is None or name not in wanted:
            what = "it holds weights that a Llama model does not have"
            raise bad_file(header.path, f"tensor {info.name}", what, "pick another model")
        if info.shape != wanted[name]:
            what = f"weights have the shape {info.shape} where the model's settings need {wanted[name]}"
            raise bad_file(header.path, f"tensor {info.name}", what, _CONVERT)
        names[info.name] = name
    missing = [name for name in wanted if name not in names.values()]
    if missing:
        raise bad_file(header.path, f"first of them: {missing[0]}", missing_weights(len(missing)), _CONVERT)
    return names


def _canonical_name(name: str) -> str | None:
    if name in _TOP_NAMES:
        return _TOP_NAMES[name]
    parts = name.split(".")
    if len(parts) != 4 or parts[0] != "blk" or parts[3] != "weight":
        return None
    kind = _LAYER_NAMES.get(parts[2])
    return f"layers.{parts[1]}.{kind}" if kind else None


def _unpermute(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """GGUF stores q and k rows so that rotary pairs are neighbours; ours are half a head apart, as in the original."""
    rows, columns = weight.shape
    return weight.view(num_heads, rows // num_heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def _tokenizer(header: GGUFHeader) -> Tokenizer:
    meta = _Metadata(header)
    tokens: list[str] = meta.get("tokenizer.ggml.tokens", (list,))
    kind: str = meta.get("tokenizer.ggml.model", (str,))
    if kind != "gpt2":
        raise bad_file(
            header.path, "", f"a tokenizer of the kind {kind!r} is not known (gpt2 is)", "use a model folder"
        )
    try:
        return build_bpe(
            tokens=tokens,
            merges=meta.get("tokenizer.ggml.merges", (list,)),
            token_types=meta.get("tokenizer.ggml.token_type", (list,), []),
            pre=meta.get("tokenizer.ggml.pre", (str,), "default"),
            bos_id=_bos_to_add(meta),
        )
    except ValueError as error:
        raise bad_file(
            header.path, "", f"its tokenizer is faulty: {error}", "use a model folder with tokenizer.json"
        ) from None


def _bos_to_add(meta: _Metadata) -> int | None:
    if not meta.get("tokenizer.ggml.add_bos_token", (bool,), False):
        return None
    value: int | None = meta.get("tokenizer.ggml.bos_token_id", (int,), None)
    return value
