"""The model that the argument of `infradoc fit` means: a name, a folder or a config.json."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from infradoc.errors import InfradocError
from infradoc_rules.sizing.config import model_of
from infradoc_rules.sizing.covered import unknown
from infradoc_rules.sizing.gpus import Gpu, gpu_named, known_gpus
from infradoc_rules.sizing.known import known_model, nearest_names
from infradoc_rules.sizing.model import Model, SizingError

_SEVERAL = re.compile(r"\s*([2-9]|[1-9]\d{1,3})\s*[x×*]\s*\D")  # "4x H100"; not "4090"
_LARGEST = 4 << 20  # bytes: real ones have a few thousand


def read_model(text: str) -> Model:
    """The model of an existing folder or file, else the well-known one of that name. Raises InfradocError."""
    try:
        path = Path(text).expanduser()
        if path.exists():
            return _from_file(path / "config.json" if path.is_dir() else path)
    except (OSError, ValueError, RuntimeError) as error:  # a name of impossible length or with a null byte
        why = (getattr(error, "strerror", None) or str(error)).rstrip(".")
        raise InfradocError(f"{text[:80]!r} cannot be read: {why}.", "Give a name or a config.json.") from error
    known = known_model(text)
    if known is not None:
        return known
    near = ", ".join(nearest_names(text))
    hint = f"Did you mean one of {near}?" if near else "Give the model's config.json, or the folder that holds it."
    raise InfradocError(f"{text[:80]!r} is neither a file here nor a model that we know.", hint)


def read_gpu(text: str) -> Gpu:
    """The device of a name. Raises InfradocError with the names that there are."""
    several = _SEVERAL.match(text)
    if several is not None:
        raise InfradocError(
            f"{text[:80]!r} names {several[1]} GPUs; --gpu takes the name of one.", f"Add --tp {several[1]} instead."
        )
    gpu = gpu_named(text)
    if gpu is None:
        names = ", ".join(one.name for one in known_gpus())
        raise InfradocError(f"There is no GPU {text[:80]!r} in the table.", f"It has {names}.")
    return gpu


def _from_file(path: Path) -> Model:
    try:
        raw = _document(path)
        model = model_of(raw, path.resolve().parent.name if path.name == "config.json" else path.stem)
        if (kind := unknown(raw)) is not None:
            raise SizingError(f"the account does not cover models of the kind {kind!r}")
        return model
    except SizingError as error:
        raise InfradocError(f"{path}: {error}.", "Give the config.json of a decoder of a common kind.") from error


def _document(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InfradocError(f"There is no file {path}.", "Give the model's config.json, or the folder that holds it.")
    if path.stat().st_size > _LARGEST:
        raise InfradocError(f"{path} is larger than any config.json.", "Give the model's config.json.")
    try:
        document = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InfradocError(f"{path} is no JSON: {error}.", "Give the model's config.json.") from error
    if not isinstance(document, dict):
        raise InfradocError(f"{path} holds no JSON object.", "Give the model's config.json.")
    return document
