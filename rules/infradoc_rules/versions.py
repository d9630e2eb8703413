"""Which spelling of a knob a version has (`versions.yaml`): flags come, go and are renamed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from infradoc_rules.yaml_file import load_plain

Version = tuple[int, int, int]
_NUMBERS = re.compile(r"(?<![\w.])v?(\d{1,4})\.(\d{1,5})(?:\.(\d{1,5}))?")
_NAME = re.compile(r"(?<![\w-])(?:--[a-z][\w-]*|[A-Z][A-Z0-9_]{4,})(?![\w-])")
_TORCH = "torch"
# Names that go on working beside the new one, so they are the safe ones where the version is not known.
_WORKS_ON = frozenset({"PYTORCH_CUDA_ALLOC_CONF"})
_REPLACED = {("torch", "PYTORCH_CUDA_ALLOC_CONF"): "PYTORCH_ALLOC_CONF"}


@dataclass(frozen=True, slots=True)
class Row:
    """One spelling: in versions [since, until), with the way to switch it off and to give it a number."""

    since: Version | None
    until: Version | None
    off: str | None
    off_since: Version | None
    form: str | None


@dataclass(frozen=True, slots=True)
class Running:
    """What runs: engine, its version and torch's, as texts; None where unknown."""

    system: str | None = None
    version: str | None = None
    torch: str | None = None

    def has(self, spelling: str) -> bool | None:
        """Whether that version has a spelling; None when the version is not known and it matters."""
        row, version = self._row(spelling)
        if row is None:
            return True
        if version is None:
            return None
        return not ((row.since is not None and version < row.since) or (row.until is not None and version >= row.until))

    def best(self, spellings: Sequence[str]) -> str | None:
        """The first spelling that the version has. Version unknown: the first that has not ended, else the first."""
        known = [spelling for spelling in spellings if self.has(_bare(spelling)) is not False]
        lasting = [spelling for spelling in known if not self._ended(_bare(spelling))]
        return next(iter([*lasting, *known]), None)

    def off(self, spelling: str) -> str | None:
        """How to switch a spelling off by a flag of its own; None where leaving it out does."""
        row, version = self._row(_bare(spelling))
        if row is None or row.off is None:
            return None
        return None if version is not None and row.off_since is not None and version < row.off_since else row.off

    def form(self, spelling: str) -> str | None:
        """How a number is given; None for the plain way."""
        row, _ = self._row(_bare(spelling))
        return None if row is None else row.form

    def respell(self, text: str) -> str | None:
        """A worded flag with renamed variables under their present names; None when the version lacks one of it."""
        for name in _NAME.findall(text):
            if self.has(name) is False:
                later = _REPLACED.get((_TORCH if name in _rows(_TORCH) else self.system or "", name))
                if later is None:
                    return None
                text = text.replace(name, later)
        return text

    def _row(self, spelling: str) -> tuple[Row | None, Version | None]:
        if spelling in _rows(_TORCH):
            return _rows(_TORCH)[spelling], version_of(self.torch)
        return _rows(self.system or "").get(spelling), version_of(self.version)

    def _ended(self, spelling: str) -> bool:
        row, version = self._row(spelling)
        if spelling in _rows(_TORCH):
            return version is None and spelling not in _WORKS_ON
        return version is None and row is not None and row.until is not None


def version_of(text: object) -> Version | None:
    """ "v0.10.2rc1" as (0, 10, 2); None when the text names no version."""
    found = _NUMBERS.search(str(text or ""))
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def _bare(spelling: str) -> str:
    return spelling.removeprefix("not ")


@lru_cache(maxsize=16)
def _rows(system: str) -> Mapping[str, Row]:
    raw: dict[str, Any] = load_plain(resources.files("infradoc_rules") / "versions.yaml")
    return {spelling: _row(row) for spelling, row in raw["spellings"].get(system, {}).items()}


def _row(row: Mapping[str, Any]) -> Row:
    return Row(
        version_of(row.get("since")),
        version_of(row.get("until")),
        row.get("off"),
        version_of(row.get("off_since")),
        row.get("form"),
    )
