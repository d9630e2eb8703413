"""Opens what the user named: a GGUF file or a model folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import torch
from tokenizers import Tokenizer

from infradoc_engine.weights.config import ModelConfig
from infradoc_engine.weights.errors import ModelFileError, bad_file
from infradoc_engine.weights.gguf import GGUFModel
from infradoc_engine.weights.safetensors_folder import SafetensorsModel


class ModelFiles(Protocol):
    """What the engine needs of a model on disk."""

    path: Path
    config: ModelConfig
    chat_template: str | None

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]: ...

    def tokenizer(self) -> Tokenizer: ...

    def tokenizer_json(self) -> str: ...


def open_model(path: Path) -> ModelFiles:
    """Checks the header and the names, shapes and bounds of all tensors; reads no weights yet.

    Raises ModelFileError, one sentence.
    """
    path = Path(path)
    if path.is_dir():
        return SafetensorsModel(path)
    if not path.exists():
        raise ModelFileError(
            f"Cannot load the model {path}: it does not exist; check the path or run `infradoc model get`."
        )
    if not path.is_file():
        raise bad_file(path, "", "it is neither a file nor a folder", "give a GGUF file or a model folder")
    return GGUFModel(path)
