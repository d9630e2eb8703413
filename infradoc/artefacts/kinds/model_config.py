"""A model's `config.json` beside the log: its shapes, of which the start-up memory account is made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span, json_spans
from infradoc_rules.model import Fact

# What an account reads, at the top and in the text and image parts; the rest of a configuration is left out.
_KEYS = frozenset(
    {
        "model_type",
        "num_hidden_layers",
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
        "vocab_size",
        "tie_word_embeddings",
        "max_position_embeddings",
        "dtype",
        "torch_dtype",
        "quantization_config",
        "num_local_experts",
        "num_experts",
        "n_routed_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "shared_expert_intermediate_size",
        "n_shared_experts",
        "first_k_dense_replace",
        "mlp_only_layers",
        "decoder_sparse_step",
        "kv_lora_rank",
        "q_lora_rank",
        "qk_rope_head_dim",
        "qk_nope_head_dim",
        "v_head_dim",
        "sliding_window",
        "use_sliding_window",
        "sliding_window_pattern",
        "layer_types",
        "depth",
    }
)
_PARTS = ("text_config", "llm_config", "vision_config")
_LARGEST = 64_000  # characters: a real one has a few thousand


class ModelConfigKind:
    """An object with `model_type` and the number of layers, at the top or in `text_config`."""

    name = "model_config"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """Every configuration that begins at the start of a line."""
        if not any('"num_hidden_layers"' in line for line in lines):
            return []
        return json_spans(lines, _is_config)

    def read(self, segment: Segment) -> Artefact:
        """One fact: the shapes as JSON text."""
        out = Artefact()
        try:
            raw = json.loads("\n".join(segment.lines))
        except (ValueError, RecursionError):
            out.unparsed = len(segment.lines)
            return out
        text = json.dumps(_kept(raw), sort_keys=True) if _is_config(raw) else ""
        if 0 < len(text) <= _LARGEST:
            out.facts.append(Fact("model.config", text, "file", segment.place(0)))
        return out


def _is_config(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("model_type"), str):
        return False
    parts = [value, *(value.get(name) for name in _PARTS[:2])]
    return any(isinstance(part, dict) and isinstance(part.get("num_hidden_layers"), int) for part in parts)


def _kept(raw: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in raw.items() if key in _KEYS}
    for name in _PARTS:
        if isinstance(raw.get(name), dict):
            kept[name] = {key: value for key, value in raw[name].items() if key in _KEYS}
    return kept
