"""Models of known shapes with random weights, made on the device: speed does not depend on what the weights say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from infradoc_engine.weights.config import ModelConfig, expected_shapes

SMOLLM2 = ModelConfig(
    architecture="llama",
    hidden_size=576,
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    intermediate_size=1536,
    vocab_size=49152,
    rope_theta=100000.0,
    max_positions=8192,
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
    name="SmolLM2-135M-shaped",
)
LLAMA_7B = ModelConfig(
    architecture="llama",
    hidden_size=4096,
    num_layers=32,
    num_heads=32,
    num_kv_heads=32,
    head_dim=128,
    intermediate_size=11008,
    vocab_size=32000,
    rope_theta=10000.0,
    max_positions=4096,
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
    name="Llama-7B-shaped",
)
TINY = ModelConfig(
    architecture="llama",
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    intermediate_size=48,
    vocab_size=300,
    rope_theta=10000.0,
    max_positions=512,
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
    name="tiny",
)


class RandomModel:
    """Stands for the files of a model (`weights.ModelFiles`), without a tokenizer."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device, seed: int = 0) -> None:
        self.config, self.path = config, Path(config.name)
        self.chat_template: str | None = None
        self._dtype, self._device, self._seed = dtype, device, seed

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Norms near 1, matrices so scaled that hidden states keep their size."""
        generator = torch.Generator(self._device).manual_seed(self._seed)
        for name, shape in expected_shapes(self.config).items():
            tensor = torch.empty(shape, dtype=self._dtype, device=self._device)
            if len(shape) == 1:
                tensor.normal_(1.0, 0.05, generator=generator)
            else:
                tensor.normal_(0.0, shape[-1] ** -0.5, generator=generator)
            yield name, tensor

    def tokenizer(self) -> Any:
        """There is none."""
        raise NotImplementedError("a model of random weights has no words")

    def tokenizer_json(self) -> str:
        """There is none."""
        raise NotImplementedError("a model of random weights has no words")
