"""Architecture name -> model class."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from infradoc_engine.models.llama import LlamaModel
from infradoc_engine.weights.config import ModelConfig, unknown_architecture
from infradoc_engine.weights.errors import ModelFileError

MODELS = {"llama": LlamaModel}  # the keys are weights.config.KNOWN_ARCHITECTURES (a test compares them)


def build(
    config: ModelConfig,
    tensors: Iterable[tuple[str, torch.Tensor]],
    dtype: torch.dtype,
    device: torch.device,
    max_positions: int,
) -> LlamaModel:
    """Builds the model that the config names. Raises ModelFileError for an architecture without one."""
    if config.architecture not in MODELS:
        raise ModelFileError(
            f"Cannot build the model: {unknown_architecture(config.architecture)}; pick another model."
        )
    return MODELS[config.architecture](config, tensors, dtype, device, max_positions)
