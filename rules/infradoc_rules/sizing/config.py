"""A model's shapes from the config.json that its publisher ships. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infradoc_rules.sizing.covered import kind_of, not_covered
from infradoc_rules.sizing.dtypes import quantization_of
from infradoc_rules.sizing.model import Experts, Latent, Model, SizingError

Config = Mapping[str, Any]

# Two matrices in the MLP instead of three, by model_type.
_UNGATED = frozenset({"phi", "gpt_neox", "starcoder2"})
_WINDOWED = frozenset({"sliding_attention", "chunked_attention"})
_ATTENTION = _WINDOWED | {"full_attention"}
# Keys of layers that keep a state: linear attention of Qwen3-Next, Mamba layers of Jamba, Nemotron-H, Falcon-H1, Zamba.
_STATES = ("full_attention_interval", "attn_layer_period", "hybrid_override_pattern", "mamba_d_ssm", "mamba_d_state")
_LARGEST = 1 << 31  # no shape of any model is larger: above it the file is damaged


def model_of(raw: Config, name: str) -> Model:
    """The model of a config.json (its text part, when it has several).

    Raises SizingError naming the missing key, or the layers that keep a state instead of keys and values.
    """
    config = _text_part(raw)
    if (what := not_covered(raw)) is not None:
        raise SizingError(f"{what}, which the account does not cover: it is one of decoders that keep keys and values")
    _only_attention(config)
    layers, hidden, heads = (_need(config, key) for key in ("num_hidden_layers", "hidden_size", "num_attention_heads"))
    kind = str(config.get("model_type", ""))
    window, windowed = _windows(config, kind, layers)
    return Model(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_number(config, "num_key_value_heads") or heads,
        head_dim=_number(config, "head_dim") or max(1, hidden // heads),
        intermediate=_number(config, "intermediate_size_mlp") or _number(config, "intermediate_size") or 4 * hidden,
        vocab=_need(config, "vocab_size"),
        tied=bool(config.get("tie_word_embeddings", raw.get("tie_word_embeddings", kind.startswith("gemma")))),
        gated=kind not in _UNGATED,
        max_positions=_number(config, "max_position_embeddings"),
        experts=_experts(config, layers),
        latent=_latent(config),
        window=window,
        windowed_layers=windowed,
        vision=_vision(raw),
        kind=kind_of(config) or kind_of(raw),
        dtype=_dtype(config, raw),
        quantization=quantization_of(raw.get("quantization_config") or config.get("quantization_config")),
    )


def _only_attention(config: Config) -> None:
    types = config.get("layer_types")
    other = sorted({str(kind) for kind in types} - _ATTENTION) if isinstance(types, list) else []
    states = [key for key in _STATES if config.get(key) is not None]
    if other or states:
        what = f"layers of type {other[0][:40]!r}" if other else f"layers with {states[0]!r}"
        raise SizingError(f"the model has {what}, whose memory is not modelled; attention layers alone are")


def _text_part(raw: Config) -> Config:
    part = next((raw[key] for key in ("text_config", "llm_config") if isinstance(raw.get(key), dict)), None)
    return raw if part is None or "num_hidden_layers" in raw else part


def _need(config: Config, key: str) -> int:
    value = _number(config, key)
    if value == 0:
        raise SizingError(f"the configuration has no usable {key!r}; a Hugging Face config.json of a decoder has it")
    return value


def _number(config: Config, key: str) -> int:
    """0 where the key is absent or null. Raises SizingError for anything but a sensible whole number."""
    value = config.get(key)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST:
        raise SizingError(
            f"{key!r} of the configuration is {str(value)[:40]!r}, not a whole number that a model can have"
        )
    return value


def _dtype(config: Config, raw: Config) -> str:
    found = next((part[key] for part in (config, raw) for key in ("dtype", "torch_dtype") if part.get(key)), "bfloat16")
    return str(found).removeprefix("torch.")


def _experts(config: Config, layers: int) -> Experts | None:
    count = next(
        (n for key in ("num_local_experts", "num_experts", "n_routed_experts") if (n := _number(config, key))), 0
    )
    if count < 2:
        return None
    width = _number(config, "moe_intermediate_size") or _need(config, "intermediate_size")
    shared = _number(config, "shared_expert_intermediate_size") or _number(config, "n_shared_experts") * width
    if shared == 0 and kind_of(config) == "llama4":  # has one beside the others, which no key tells
        shared = width
    listed = config.get("mlp_only_layers")
    dense = _number(config, "first_k_dense_replace") + (len(listed) if isinstance(listed, list) else 0)
    step = _number(config, "decoder_sparse_step") or _number(config, "interleave_moe_layer_step") or 1
    active = _number(config, "num_experts_per_tok") or 1
    return Experts(count, width, shared, min(layers, dense + (layers - layers // step)), min(active, count))


def _latent(config: Config) -> Latent | None:
    rank = _number(config, "kv_lora_rank")
    if rank == 0:
        return None
    sizes = (_need(config, key) for key in ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
    return Latent(rank, _number(config, "q_lora_rank"), *sizes)


def _windows(config: Config, kind: str, layers: int) -> tuple[int, int]:
    """(tokens of the window, layers that have one)."""
    window = _number(config, "sliding_window") or _number(config, "attention_chunk_size")
    if window == 0 or config.get("use_sliding_window") is False:
        return 0, 0
    types = config.get("layer_types")
    if isinstance(types, list):
        return window, min(layers, sum(kind in _WINDOWED for kind in types))
    if kind.startswith("llama4"):  # every fourth layer has neither chunks nor positions
        return window, layers - layers // 4
    if every := _number(config, "sliding_window_pattern"):
        return window, layers - layers // every  # the last of each group sees everything
    if kind.startswith("gemma3"):
        return window, layers - layers // 6
    return window, (layers + 1) // 2 if kind in ("gemma2", "gpt_oss") else layers


def _vision(raw: Config) -> int:
    """Parameters of an image tower, from its layers alone (its embeddings are under 2 % of it)."""
    tower = raw.get("vision_config")
    if not isinstance(tower, dict) or not _number(tower, "hidden_size"):
        return 0
    hidden = _number(tower, "hidden_size")
    layers = _number(tower, "num_hidden_layers") or _number(tower, "depth")
    return layers * (4 * hidden * hidden + 2 * hidden * (_number(tower, "intermediate_size") or 4 * hidden))
