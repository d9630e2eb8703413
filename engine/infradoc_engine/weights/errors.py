"""What goes wrong with model files: one sentence with what, where and what to do next."""

from __future__ import annotations

from pathlib import Path


class ModelFileError(Exception):
    """A model file or folder that cannot be used. The text is one sentence for a person."""


def bad_file(path: Path, where: str, what: str, next_step: str) -> ModelFileError:
    """Words a fault in one file; `where` is an offset, a key or a tensor name."""
    return ModelFileError(f"Cannot load the model: {path}, {where}: {what}; {next_step}.")
