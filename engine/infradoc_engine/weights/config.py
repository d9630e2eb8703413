"""The shape of a model, in one vocabulary for every file format."""

from __future__ import annotations

import math
from dataclasses import dataclass

# What `models.registry` can build. Named here, so that a reader can refuse a file before it touches the weights.
KNOWN_ARCHITECTURES = ("llama",)

# No model comes near these; without them a hostile file could ask for a table of a billion tensor names.
MAX_LAYERS, MAX_SIZE = 1024, 1 << 24


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes are counts, `rope_theta` is the base of the rotary frequencies, `max_positions` is in tokens."""

    architecture: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    rope_theta: float
    max_positions: int
    rms_norm_eps: float
    tie_word_embeddings: bool
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    quantization: str | None = None  # how the file stores most weights ("Q4_1"); None: as plain floats
    name: str = ""

    def problem(self) -> str | None:
        """Says what makes these sizes impossible, or None. Files are untrusted: checked before anything is built."""
        positive = {
            "hidden_size": self.hidden_size,
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "num_kv_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.intermediate_size,
            "vocab_size": self.vocab_size,
            "max_positions": self.max_positions,
        }
        for key, value in positive.items():
            most = MAX_LAYERS if key == "num_layers" else MAX_SIZE
            if not 0 < value <= most:
                return f"{key} is {value}, outside 1 to {most}"
        if self.num_heads % self.num_kv_heads:
            return f"num_heads {self.num_heads} is not a multiple of num_kv_heads {self.num_kv_heads}"
        if self.head_dim % 2:
            return f"head_dim {self.head_dim} is odd, rotary positions need pairs"
        if not (0 < self.rope_theta < math.inf and 0 < self.rms_norm_eps < math.inf):
            return f"rope_theta {self.rope_theta} and rms_norm_eps {self.rms_norm_eps} must be positive and finite"
        return None


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Canonical tensor name -> shape of everything a Llama-shaped model needs. An untied head is `lm_head`."""
    hidden, inner = config.hidden_size, config.intermediate_size
    q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens": (config.vocab_size, hidden), "norm": (hidden,)}
    if not config.tie_word_embeddings:
        shapes["lm_head"] = (config.vocab_size, hidden)
    for layer in range(config.num_layers):
        shapes |= {
            f"layers.{layer}.attn_norm": (hidden,),
            f"layers.{layer}.q_proj": (q_size, hidden),
            f"layers.{layer}.k_proj": (kv_size, hidden),
            f"layers.{layer}.v_proj": (kv_size, hidden),
            f"layers.{layer}.o_proj": (hidden, q_size),
            f"layers.{layer}.mlp_norm": (hidden,),
            f"layers.{layer}.gate_proj": (inner, hidden),
            f"layers.{layer}.up_proj": (inner, hidden),
            f"layers.{layer}.down_proj": (hidden, inner),
        }
    return shapes


def unknown_architecture(found: str) -> str:
    """The sentence part for an architecture that no model here implements."""
    return f"architecture {found[:40]!r} is not known (known: {', '.join(KNOWN_ARCHITECTURES)})"
