"""The closed list of finding ids (`vocabulary.yaml`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from infradoc_rules.yaml_file import load_plain


@dataclass(frozen=True, slots=True)
class FindingId:
    """One name of a diagnosis: its area (the catalog folder), the row of the article's table, what it means."""

    id: str
    area: str
    table: str | None
    means: str


@lru_cache(maxsize=1)
def finding_ids() -> Mapping[str, FindingId]:
    """All finding ids by name."""
    raw: dict[str, Any] = load_plain(resources.files("infradoc_rules") / "vocabulary.yaml")
    return {name: FindingId(name, row["area"], row.get("table"), row["means"]) for name, row in raw["findings"].items()}
