"""A Hugging Face model folder as model files: config.json, *.safetensors, tokenizer.json."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from infradoc_engine.sizes import size_text
from infradoc_engine.weights.config import KNOWN_ARCHITECTURES, ModelConfig, expected_shapes, unknown_architecture
from infradoc_engine.weights.errors import bad_file, missing_weights

MAX_JSON_BYTES = 256 << 20  # the largest tokenizer.json in use is about 35 MB
_AGAIN = "download the folder again"
_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "q_proj",
    "self_attn.k_proj": "k_proj",
    "self_attn.v_proj": "v_proj",
    "self_attn.o_proj": "o_proj",
    "post_attention_layernorm": "mlp_norm",
    "mlp.gate_proj": "gate_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "down_proj",
}
_TOP_NAMES = {"model.embed_tokens.weight": "embed_tokens", "model.norm.weight": "norm", "lm_head.weight": "lm_head"}
_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class SafetensorsModel:
    """An open model folder. Weights are mapped by the safetensors library, which checks its headers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        raw = read_json(path / "config.json")
        self._tokenizer_path = path / "tokenizer.json"
        if not self._tokenizer_path.is_file():
            raise bad_file(path, "", "the folder has no tokenizer.json", "copy the model's tokenizer.json there")
        self.config = _config(path / "config.json", raw)
        self.chat_template = _chat_template(path)
        self._files = _weight_files(path)
        self._places = self._locate()

    def _locate(self) -> dict[str, tuple[Path, str]]:
        """Canonical name -> (file, name in it), with shapes checked and nothing missing."""
        wanted = expected_shapes(self.config)
        places: dict[str, tuple[Path, str]] = {}
        for file in self._files:
            for stored, shape, dtype in _entries(file):
                name = _canonical_name(stored)
                if name is None or name not in wanted:
                    continue  # rotary buffers and a tied lm_head copy carry nothing new
                if shape != wanted[name]:
                    what = f"weights have the shape {shape} where config.json needs {wanted[name]}"
                    raise bad_file(file, f"tensor {stored}", what, _AGAIN)
                if dtype not in _DTYPES:
                    raise bad_file(
                        file, f"tensor {stored}", f"weights of type {dtype} are not supported", "use F32, F16 or BF16"
                    )
                places[name] = (file, stored)
        missing = [name for name in wanted if name not in places]
        if missing:
            raise bad_file(self.path, f"first of them: {missing[0]}", missing_weights(len(missing)), _AGAIN)
        return places

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Canonical name and tensor in the stored float type, one at a time."""
        for file in self._files:
            with safe_open(file, framework="pt") as weights:
                for name, (home, stored) in self._places.items():
                    if home == file:
                        yield name, weights.get_tensor(stored)

    def tokenizer(self) -> Tokenizer:
        """Raises ModelFileError when tokenizer.json is no tokenizer."""
        text = read_text(self._tokenizer_path)
        try:
            return Tokenizer.from_str(text)
        except BaseException as error:  # the library raises bare Exception, and its panics are not even that
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise bad_file(
                self._tokenizer_path, "", f"it holds no usable tokenizer: {str(error)[:120]}", _AGAIN
            ) from None

    def tokenizer_json(self) -> str:
        """The tokenizer in the format of the tokenizers library."""
        return str(self.tokenizer().to_str())


def read_text(path: Path) -> str:
    """The text of a JSON file of the folder, size-checked. Raises ModelFileError."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            size, most = size_text(path.stat().st_size), size_text(MAX_JSON_BYTES)
            raise bad_file(path, "", f"it is too large for such a file, {size} where {most} is the most", _AGAIN)
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise bad_file(path, "", "it is damaged: its text is not UTF-8", _AGAIN) from None
    except OSError as error:
        raise bad_file(path, "", f"it cannot be read: {error.strerror or error}", _AGAIN) from None


def read_json(path: Path) -> dict[str, Any]:
    """An object from a JSON file. Raises ModelFileError."""
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise bad_file(path, "", f"it is damaged, no valid JSON: {str(error)[:80]}", _AGAIN) from None
    if not isinstance(value, dict):
        raise bad_file(path, "", "it is damaged, no JSON object", _AGAIN)
    return value


def _number(path: Path, raw: dict[str, Any], key: str, default: Any = ...) -> Any:
    value = raw.get(key)
    if value is None and default is not ...:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise bad_file(path, f"key {key}", "a setting is missing or no number", _AGAIN)
    return value


def _config(path: Path, raw: dict[str, Any]) -> ModelConfig:
    arch = raw.get("model_type")
    if arch not in KNOWN_ARCHITECTURES:
        raise bad_file(path, "", unknown_architecture(str(arch)), "pick another model")
    refused = _refused(raw)
    if refused:
        what = f"it has a setting that is not supported, {str(raw.get(refused))[:60]}"
        raise bad_file(path, f"key {refused}", what, "pick another model")
    hidden, heads = int(_number(path, raw, "hidden_size")), int(_number(path, raw, "num_attention_heads"))
    rope = raw.get("rope_parameters")
    theta = rope.get("rope_theta") if isinstance(rope, dict) else None
    config = ModelConfig(
        architecture=str(arch),
        hidden_size=hidden,
        num_layers=int(_number(path, raw, "num_hidden_layers")),
        num_heads=heads,
        num_kv_heads=int(_number(path, raw, "num_key_value_heads", heads)),
        head_dim=int(_number(path, raw, "head_dim", hidden // max(heads, 1))),
        intermediate_size=int(_number(path, raw, "intermediate_size")),
        vocab_size=int(_number(path, raw, "vocab_size")),
        rope_theta=float(_number(path, {"rope_theta": theta or raw.get("rope_theta")}, "rope_theta", 10000.0)),
        max_positions=int(_number(path, raw, "max_position_embeddings")),
        rms_norm_eps=float(_number(path, raw, "rms_norm_eps")),
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        bos_token_id=_number(path, raw, "bos_token_id", None),
        eos_token_ids=_eos_ids(raw.get("eos_token_id")),
        name=path.parent.name,
    )
    problem = config.problem()
    if problem:
        raise bad_file(path, "", f"its settings cannot be right: {problem}", _AGAIN)
    return config


def _refused(raw: dict[str, Any]) -> str | None:
    """The first setting that would change the mathematics in a way the model here does not follow."""
    for key in ("attention_bias", "mlp_bias", "quantization_config"):
        if raw.get(key):
            return key
    if raw.get("hidden_act", "silu") != "silu":
        return "hidden_act"
    for key in ("rope_scaling", "rope_parameters"):
        rope = raw.get(key)
        if rope and (not isinstance(rope, dict) or rope.get("rope_type", rope.get("type", "default")) != "default"):
            return key
    return None


def _eos_ids(value: object) -> tuple[int, ...]:
    items = value if isinstance(value, list) else [value]
    return tuple(item for item in items if isinstance(item, int) and not isinstance(item, bool))


def _chat_template(path: Path) -> str | None:
    """chat_template.jinja wins over the key in tokenizer_config.json, as in the transformers library."""
    file = path / "chat_template.jinja"
    if file.is_file():
        return read_text(file)
    file = path / "tokenizer_config.json"
    template = read_json(file).get("chat_template") if file.is_file() else None
    return template if isinstance(template, str) else None


def _weight_files(path: Path) -> list[Path]:
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise bad_file(path, "", "the folder has no weights (*.safetensors)", _AGAIN)
    return files


def _entries(file: Path) -> list[tuple[str, tuple[int, ...], str]]:
    try:
        with safe_open(file, framework="pt") as weights:
            slices = [(name, weights.get_slice(name)) for name in weights.keys()]  # noqa: SIM118 (no mapping)
            return [(name, tuple(part.get_shape()), str(part.get_dtype())) for name, part in slices]
    except (SafetensorError, OSError) as error:
        raise bad_file(file, "", f"it is damaged or cut short: {str(error)[:120]}", _AGAIN) from None


def _canonical_name(name: str) -> str | None:
    if name in _TOP_NAMES:
        return _TOP_NAMES[name]
    layer, _, rest = name.removeprefix("model.layers.").partition(".")
    kind = _LAYER_NAMES.get(rest.removesuffix(".weight"))
    if not name.startswith("model.layers.") or not rest.endswith(".weight") or kind is None:
        return None
    return f"layers.{layer}.{kind}"
