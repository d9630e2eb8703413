"""Readers of model files. Model files are untrusted.

The readers themselves are imported when first asked for: a model whose weights come from elsewhere runs without their
packages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infradoc_engine.weights.config import ModelConfig
from infradoc_engine.weights.errors import ModelFileError

if TYPE_CHECKING:
    from infradoc_engine.weights.open import ModelFiles, open_model

__all__ = ["ModelConfig", "ModelFileError", "ModelFiles", "open_model"]


def __getattr__(name: str) -> Any:
    if name in ("ModelFiles", "open_model"):
        from infradoc_engine.weights import open as reader

        return getattr(reader, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
