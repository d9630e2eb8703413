"""Devices by the names that tools and people give them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

import re2

from infradoc_rules.units import GIB
from infradoc_rules.yaml_file import load_plain


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device. memory_bytes: what the driver shows in all; capability: CUDA's, None for other makers."""

    name: str
    memory_bytes: int
    capability: float | None
    bandwidth: float  # bytes a second, data sheet


def gpu_named(text: str) -> Gpu | None:
    """The device that a text names ("NVIDIA H100 80GB HBM3", "4x A10"); None when it names none that we know."""
    name = text[:200].lower()
    return next((gpu for pattern, gpu in _table() if pattern.search(name)), None)


def known_gpus() -> list[Gpu]:
    """All devices of the table."""
    return [gpu for _, gpu in _table()]


@lru_cache(maxsize=1)
def _table() -> list[tuple[Any, Gpu]]:
    raw: dict[str, Any] = load_plain(resources.files("infradoc_rules.sizing") / "gpus.yaml")
    return [(re2.compile(row["match"]), _gpu(row)) for row in raw["gpus"]]


def _gpu(row: dict[str, Any]) -> Gpu:
    capability = row.get("capability")
    bandwidth = float(row["bandwidth"]) * 1e9
    return Gpu(row["name"], int(row["memory_gib"] * GIB), None if capability is None else float(capability), bandwidth)
