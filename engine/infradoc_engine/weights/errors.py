"""What goes wrong with model files: one sentence with what, where and what to do next."""

from __future__ import annotations

from pathlib import Path


class ModelFileError(Exception):
    """A model file or folder that cannot be used. The text is one sentence for a person."""


def bad_file(path: Path, where: str, what: str, next_step: str) -> ModelFileError:
    """Words a fault in one file: what it means, then `where` in the file's own terms (an offset, a key, a tensor)."""
    return ModelFileError(f"Cannot load the model {path}: {what}{f' ({where})' if where else ''}; {next_step}.")


def missing_weights(count: int) -> str:
    """The sentence part for tensors that a model must have and this file has not."""
    return f"{count} of the model's weight tensors {'is' if count == 1 else 'are'} missing"
