"""Well-known models by the names that people and files give them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from importlib import resources
from typing import Any

import re2

from infradoc_rules.near import nearest
from infradoc_rules.sizing.config import model_of
from infradoc_rules.sizing.model import Model
from infradoc_rules.yaml_file import load_plain

_LONGEST = 200
_WORDS = re2.compile(r"[a-z]+[0-9]*(?:\.[0-9]+)?[a-z0-9]*|[0-9][0-9.a-z]*")
_FILLER = frozenset(
    {"instruct", "chat", "it", "base", "hf", "meta", "pt", "thinking", "preview", "model", "models", "bf16"}
)
_DATE = re2.compile(r"[0-9]{4}|[0-9]{6}")
_QUANTIZED = {
    "awq": "awq", "gptq": "gptq", "int4": "int4", "w4a16": "int4", "4bit": "int4", "fp8": "fp8", "int8": "int8",
    "w8a8": "int8", "8bit": "int8", "bnb": "bitsandbytes", "nvfp4": "nvfp4", "mxfp4": "mxfp4", "dynamic": "",
    "marlin": "", "quantized": "",
}  # fmt: skip


def known_model(text: str) -> Model | None:
    """The model that a name means ("meta-llama/Llama-3.1-8B-Instruct", "qwen2.5 7b awq"); None when none is known.

    A quantization in the name ("-AWQ", "-FP8") becomes the model's.
    """
    words = _words(text)
    found = _table().get("".join(word for word in words if word not in _QUANTIZED))
    if found is None:
        return None
    methods = [_QUANTIZED[word] for word in words if _QUANTIZED.get(word)]
    quantized = "int8" if "int8" in methods else next(iter(methods), None)  # "GPTQ-Int8" has eight bits
    return replace(found, quantization=quantized) if quantized else found


def known_names() -> list[str]:
    """The names of the table."""
    return list(dict.fromkeys(model.name for model in _table().values()))


def nearest_names(text: str, most: int = 3) -> list[str]:
    """Names that look like `text`, best first."""
    key = "".join(word for word in _words(text) if word not in _QUANTIZED)
    found = nearest(key, _table(), 2 * most)  # a model may have two names of the table
    return list(dict.fromkeys(_table()[one].name for one in found))[:most]


def _words(text: str) -> list[str]:
    """Words of a name without maker, filler and dates."""
    name = text[:_LONGEST].rstrip("/").rsplit("/", 1)[-1].lower()
    words = [word for piece in _pieces(name) for word in _WORDS.findall(piece)]
    return [word for word in words if word not in _FILLER and not _DATE.fullmatch(word)]


def _pieces(name: str) -> list[str]:
    return name.replace("_", " ").replace("-", " ").replace(":", " ").split()


@lru_cache(maxsize=1)
def _table() -> dict[str, Model]:
    raw: dict[str, Any] = load_plain(resources.files("infradoc_rules.sizing") / "models.yaml")
    table: dict[str, Model] = {}
    for row in raw["models"]:
        model = model_of(raw["families"][row["family"]] | row, row["name"])
        for name in (row["name"], *row.get("also", ())):
            table["".join(_words(name))] = replace(model, name=name)
    return table
