"""The file that a run leaves: written whole after every row, by a rename, so that a cut run keeps what it has."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infradoc_engine.gpu_check.look import Row

FORMAT = 1


class Record:
    """{"format", "started", "asked", "quick", "dry_run", "steps": {name: {"rows", "seconds", "finished", ...}}}.

    A step that failed has "error", one whose time was up has "cut".
    """

    def __init__(self, path: Path, asked: Sequence[str], quick: bool, dry: bool) -> None:
        self.path = path
        self.data: dict[str, Any] = {
            "format": FORMAT,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "asked": list(asked),
            "quick": quick,
            "dry_run": dry,
            "steps": {},
        }

    def open(self, step: str) -> dict[str, Any]:
        """The entry of a step that begins; fill it and `save`."""
        entry: dict[str, Any] = {"rows": [], "finished": False}
        self.data["steps"][step] = entry
        return entry

    def add(self, step: str, row: Row) -> None:
        """One more row, on disk when this returns."""
        self.data["steps"][step]["rows"].append(row)
        self.save()

    def save(self) -> None:
        """Writes the file."""
        aside = self.path.with_name(self.path.name + ".part")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(json.dumps(_plain(self.data), indent=1) + "\n")
        aside.replace(self.path)


def _plain(value: Any) -> Any:
    """JSON has no NaN, and keys are text."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else str(value)
    return value if isinstance(value, str | int | bool | None) else str(value)
