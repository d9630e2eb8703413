"""Readers of model files. Model files are untrusted."""

from __future__ import annotations

from infradoc_engine.weights.config import ModelConfig
from infradoc_engine.weights.errors import ModelFileError
from infradoc_engine.weights.open import ModelFiles, open_model

__all__ = ["ModelConfig", "ModelFileError", "ModelFiles", "open_model"]
