"""A model as its shapes: parameters by how they are split and stored, and bytes of KV cache a token. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil


class SizingError(ValueError):
    """An input that no account can be made of; the text says which and what would do."""


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention (DeepSeek V2 paper, section 2.1): ranks and head widths. query_rank 0: no squeeze."""

    kv_rank: int
    query_rank: int
    rope: int
    nope: int
    value: int


@dataclass(frozen=True, slots=True)
class Experts:
    """Mixture layers: how many experts of which width, the width of all shared ones, the layers that are dense, and how
    many experts a token goes through."""

    count: int
    width: int
    shared_width: int = 0
    dense_layers: int = 0
    active: int = 1


@dataclass(frozen=True, slots=True)
class Model:
    """Shapes of a decoder. `windowed_layers` of `layers` keep only `window` tokens; vision: parameters beside the text.

    dtype and quantization are what the checkpoint itself says, kind is its `model_type`; max_positions 0: not told.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool = False
    gated: bool = True
    max_positions: int = 0
    experts: Experts | None = None
    latent: Latent | None = None
    window: int = 0
    windowed_layers: int = 0
    vision: int = 0
    kind: str = ""
    dtype: str = "bfloat16"
    quantization: str | None = None

    @property
    def embedding(self) -> int:
        """Parameters of the input embedding."""
        return self.vocab * self.hidden

    @property
    def head(self) -> int:
        """Parameters of the output matrix; 0 when it is the embedding."""
        return 0 if self.tied else self.embedding

    @property
    def attention_split(self) -> int:
        """Attention parameters of a layer that tensor parallelism splits by heads."""
        if self.latent is None:
            return self.hidden * self.head_dim * 2 * (self.heads + self.kv_heads)
        latent = self.latent
        query = (latent.query_rank or self.hidden) * self.heads * (latent.nope + latent.rope)
        lifted = latent.kv_rank * self.heads * (latent.nope + latent.value)
        return query + lifted + self.heads * latent.value * self.hidden

    @property
    def attention_whole(self) -> int:
        """Attention parameters of a layer that each GPU holds whole: the projections into the latent."""
        if self.latent is None:
            return 0
        return self.hidden * (self.latent.query_rank + self.latent.kv_rank + self.latent.rope)

    @property
    def dense(self) -> int:
        """MLP and shared-expert parameters of all layers."""
        matrices = 3 if self.gated else 2
        if self.experts is None:
            return self.layers * matrices * self.hidden * self.intermediate
        plain = self.experts.dense_layers * self.intermediate
        return matrices * self.hidden * (plain + self.mixture_layers * self.experts.shared_width)

    @property
    def mixture_layers(self) -> int:
        """Layers with experts."""
        return 0 if self.experts is None else self.layers - self.experts.dense_layers

    def routed(self, pad_hidden: int = 1, pad_width: int = 1) -> int:
        """Parameters of all routed experts, with both sides rounded up as a kernel may want them."""
        if self.experts is None:
            return 0
        hidden = ceil(self.hidden / pad_hidden) * pad_hidden
        width = ceil(self.experts.width / pad_width) * pad_width
        return self.mixture_layers * self.experts.count * 3 * hidden * width

    @property
    def whole(self) -> int:
        """Parameters of all layers that each GPU of a stage holds: norms, routers, latent projections."""
        router = 0 if self.experts is None else self.mixture_layers * self.experts.count * self.hidden
        return self.layers * (self.attention_whole + 2 * self.hidden) + router + self.hidden

    @property
    def parameters(self) -> int:
        """All parameters, biases left out (under 0.1 %)."""
        split = self.layers * self.attention_split + self.dense + self.routed()
        return split + self.whole + self.embedding + self.head + self.vision

    def kv_values_per_layer(self, tensor_parallel: int = 1) -> int:
        """Numbers that one layer keeps of a token on one GPU. A latent, and a head fewer than GPUs, is on each."""
        if self.latent is not None:
            return self.latent.kv_rank + self.latent.rope
        return 2 * self.head_dim * ceil(self.kv_heads / tensor_parallel)

    def kv_bytes_per_token(self, item: int) -> int:
        """KV bytes of one token over all GPUs that share it and all layers (`item`: bytes a number)."""
        return self.layers * self.kv_values_per_layer() * item
