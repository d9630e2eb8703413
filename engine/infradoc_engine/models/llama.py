"""The Llama architecture on a flat batch of tokens: prefill chunks and decodes of many requests in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from infradoc_engine.layers.attention import Attention, AttentionStep
from infradoc_engine.layers.linear import FusedRows, Linear, can_pack
from infradoc_engine.layers.mlp import GatedMLP
from infradoc_engine.weights.config import ModelConfig
from infradoc_kernels import ops


@dataclass(slots=True)
class _Layer:
    attn_norm: torch.Tensor
    attention: Attention
    mlp_norm: torch.Tensor
    mlp: GatedMLP


class LlamaModel:
    """Weights and the forward pass. Not thread-safe: one engine thread runs it."""

    def __init__(
        self,
        config: ModelConfig,
        tensors: Iterable[tuple[str, torch.Tensor]],
        dtype: torch.dtype,
        device: torch.device,
        max_positions: int,
    ) -> None:
        """Takes canonical (name, tensor) pairs as `weights` yields them: complete, with checked shapes."""
        self.config, self.dtype, self.device = config, dtype, device
        loader = _Loader(config, dtype, device)
        for name, tensor in tensors:
            loader.put(name, tensor)
        self._embedding, self._head, self._norm = loader.embedding, loader.head(), loader.norms["norm"]
        self._layers = [loader.layer(index) for index in range(config.num_layers)]
        cos, sin = ops.rope_angles(config.head_dim, config.rope_theta, max_positions)
        self._cos, self._sin = cos.to(device), sin.to(device)
        tables = [self._embedding, self._cos, self._sin, *loader.norms.values()]
        self.weight_bytes = loader.linear_bytes + sum(t.numel() * t.element_size() for t in tables)

    def step(self, positions: torch.Tensor, slots: torch.Tensor, block_size: int, plan: ops.Plan) -> AttentionStep:
        """What all layers share; positions and slots: int64 [num_tokens]."""
        plain = isinstance(plan, ops.AttentionPlan)
        rows = ops.cache_rows(slots, self.config.num_kv_heads, block_size) if plain else None
        return AttentionStep(self._cos[positions], self._sin[positions], slots, rows, plan)

    def forward(
        self,
        token_ids: torch.Tensor,
        step: AttentionStep,
        cache: Sequence[tuple[torch.Tensor, torch.Tensor]],
        sample_rows: torch.Tensor,
        num_layers: int | None = None,
    ) -> torch.Tensor:
        """Logits [len(sample_rows), vocab_size] float32 of the rows that sample; int64 ids and rows.

        `cache` has a pair of tensors for each layer. `num_layers` runs only the first ones: a memory probe.
        """
        eps = self.config.rms_norm_eps
        x, residual = self._embedding[token_ids], None
        for layer, layer_cache in zip(self._layers[:num_layers], cache, strict=True):
            x, residual = ops.rms_norm(x, layer.attn_norm, eps, residual)
            x = layer.attention(x, step, layer_cache)
            x, residual = ops.rms_norm(x, layer.mlp_norm, eps, residual)
            x = layer.mlp(x)
        assert residual is not None
        x, _ = ops.rms_norm(x[sample_rows], self._norm, eps, residual[sample_rows])
        return self._head(x).float()


def weight_bytes(config: ModelConfig, dtype: torch.dtype, device: torch.device) -> int:
    """Bytes that the loaded weights will take, known before the load."""
    q_and_kv = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
    per_layer = config.hidden_size * (q_and_kv + config.num_heads * config.head_dim + 3 * config.intermediate_size + 2)
    table = config.vocab_size * config.hidden_size
    # A packed head cannot serve as the embedding table, so tied weights are stored twice then.
    copies = 1 if config.tie_word_embeddings and not can_pack(device, dtype) else 2
    return (config.num_layers * per_layer + copies * table + config.hidden_size) * dtype.itemsize


class _Loader:
    """Builds layers from tensors in any order, holding back only what waits to be fused."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        self._config, self._dtype, self._device = config, dtype, device
        self._waiting: dict[str, FusedRows] = {}
        self._linears: dict[str, Linear] = {}
        self.norms: dict[str, torch.Tensor] = {}
        self.embedding = torch.empty(0)
        q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self._fused = {
            "qkv": {"q_proj": q_size, "k_proj": kv_size, "v_proj": kv_size},
            "gate_up": {"gate_proj": config.intermediate_size, "up_proj": config.intermediate_size},
        }
        self._home = {part: fused for fused, parts in self._fused.items() for part in parts}

    @property
    def linear_bytes(self) -> int:
        linears = {id(linear): linear for linear in self._linears.values()}.values()
        shared = self._config.tie_word_embeddings and not can_pack(self._device, self._dtype)
        return sum(linear.num_bytes for linear in linears) - (self._linears["lm_head"].num_bytes if shared else 0)

    def put(self, name: str, tensor: torch.Tensor) -> None:
        prefix, _, kind = name.rpartition(".")
        if kind in self._home:
            self._put_part(prefix, kind, tensor)
            return
        tensor = tensor.to(self._device, self._dtype)
        if name == "embed_tokens":
            self.embedding = tensor
        elif tensor.dim() == 1:
            self.norms[name] = tensor
        else:
            self._linears[name] = Linear(tensor)

    def _put_part(self, prefix: str, kind: str, tensor: torch.Tensor) -> None:
        key = f"{prefix}.{self._home[kind]}"
        if key not in self._waiting:
            parts = self._fused[self._home[kind]]
            self._waiting[key] = FusedRows(parts, self._config.hidden_size, self._dtype, self._device)
        if self._waiting[key].put(kind, tensor):
            self._linears[key] = self._waiting.pop(key).finish()

    def head(self) -> Linear:
        if self._config.tie_word_embeddings:
            self._linears["lm_head"] = Linear(self.embedding)
        return self._linears["lm_head"]

    def layer(self, index: int) -> _Layer:
        at, config = f"layers.{index}.", self._config
        attention = Attention(
            self._linears[at + "qkv"],
            self._linears[at + "o_proj"],
            config.num_heads,
            config.head_dim,
        )
        mlp = GatedMLP(self._linears[at + "gate_up"], self._linears[at + "down_proj"])
        return _Layer(self.norms[at + "attn_norm"], attention, self.norms[at + "mlp_norm"], mlp)
