"""Which spelling of a knob a version has, and how it is written there (`versions.yaml`): flags come and go."""

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
_BUILD = re.compile(r"(?<![\w.])b?(\d{1,6})(?![\w.])")  # llama.cpp counts its builds: "b6123", "build: 6123 (79c1160b)"
_NAME = re.compile(r"(?<![\w-])(?:--?[a-z][\w-]*|[A-Z][A-Z0-9_]{4,})(?![\w-])")
_TORCH = "torch"
_BUILDS = "llamacpp"

Texts = tuple[tuple[Version, str], ...]  # from which version on, oldest first


@dataclass(frozen=True, slots=True)
class Row:
    """One spelling: in versions [since, until) on `device`, with the ways to switch it and to give it a value."""

    since: Version | None
    until: Version | None
    never: bool
    on: Texts
    off: Texts
    form: Texts
    unit: float | None
    device: str | None
    v0: bool
    words: Mapping[str, Texts]


@dataclass(frozen=True, slots=True)
class Running:
    """What runs: engine, its version and torch's, as texts, the device and vLLM's "V0" or "V1"; None where unknown."""

    system: str | None = None
    version: str | None = None
    torch: str | None = None
    device: str | None = None
    api: str | None = None

    def has(self, spelling: str) -> bool | None:
        """Whether that version has a spelling; None when the version is not known and it matters."""
        row, version = self._row(spelling)
        if row is None:
            return True
        if row.never or not self._on_device(row) or (row.v0 and self.api == "V1"):
            return False
        if version is None:
            return None if row.since is not None or row.until is not None else True
        return not ((row.since is not None and version < row.since) or (row.until is not None and version >= row.until))

    def best(self, spellings: Sequence[str]) -> str | None:
        """The first spelling that the version has.

        Version unknown: the first that is in all versions, else the first that has not ended, else the first.
        """
        there = {spelling: self.has(_bare(spelling)) for spelling in spellings}
        sure = [spelling for spelling, has in there.items() if has]
        known = [spelling for spelling, has in there.items() if has is not False]
        lasting = [spelling for spelling in known if not self._ended(_bare(spelling))]
        return next(iter([*sure, *lasting, *known]), None)

    def later(self, spellings: Sequence[str]) -> str | None:
        """The next version, as text, that has one of the spellings; None: none comes, or the version is not known."""
        rows = [(self._row(_bare(spelling)), _bare(spelling) in _rows(_TORCH)) for spelling in spellings]
        coming = [
            row.since
            for (row, version), torch in rows
            if row is not None and row.since is not None and version is not None and version < row.since and not torch
        ]
        return _written(min(coming), self.system) if coming else None

    def lasts(self, spelling: str) -> tuple[str | None, str | None]:
        """(first version that has a spelling, first one without it), as texts; None where it has always or still is."""
        row, _ = self._row(_bare(spelling))
        if row is None:
            return None, None
        since, until = (None if one is None else _written(one, self.system) for one in (row.since, row.until))
        return since, until

    def on(self, spelling: str) -> str | None:
        """How a spelling is switched on; None where its bare name does."""
        return self._text(spelling, "on")

    def off(self, spelling: str) -> str | None:
        """How to switch a spelling off by a flag of its own; None where leaving it out does."""
        return self._text(spelling, "off")

    def form(self, spelling: str) -> str | None:
        """How a value is given; None for the plain way."""
        return self._text(spelling, "form")

    def word(self, spelling: str, value: str) -> str:
        """What this version calls a value of a flag."""
        row, version = self._row(_bare(spelling))
        return value if row is None else _newest(row.words.get(value, ()), version) or value

    def unit(self, spelling: str) -> float | None:
        """Bytes that one of the flag's counts stands for; None where it counts as the knob does."""
        row, _ = self._row(_bare(spelling))
        return None if row is None else row.unit

    def takes(self, text: str) -> bool:
        """Whether the version may have all of a worded flag's names."""
        return all(self.has(name) is not False for name in _NAME.findall(text))

    def ended(self, text: str) -> bool:
        """Whether a worded flag holds a spelling that this version no longer has, or reads no more."""
        for name in _NAME.findall(text):
            row, version = self._row(name)
            if row is not None and row.until is not None and version is not None and version >= row.until:
                return True
        return False

    def _text(self, spelling: str, what: str) -> str | None:
        row, version = self._row(_bare(spelling))
        return None if row is None else _newest(getattr(row, what), version)

    def _on_device(self, row: Row) -> bool:
        return row.device is None or (self.device == "cpu") is (row.device == "cpu")

    def _row(self, spelling: str) -> tuple[Row | None, Version | None]:
        if spelling in _rows(_TORCH):
            return _rows(_TORCH)[spelling], version_of(self.torch)
        return _rows(self.system or "").get(spelling), version_of(self.version, self.system)

    def _ended(self, spelling: str) -> bool:
        row, version = self._row(spelling)
        return version is None and row is not None and row.until is not None


def version_of(text: object, system: str | None = None) -> Version | None:
    """ "v0.10.2rc1" as (0, 10, 2), llama.cpp's build "b6123" as (0, 0, 6123); None when the text names no version."""
    found = _NUMBERS.search(str(text or ""))
    if found is not None:
        return (int(found[1]), int(found[2]), int(found[3] or 0))
    build = _BUILD.search(str(text or "")) if system == _BUILDS else None
    return (0, 0, int(build[1])) if build else None


def _written(version: Version, system: str | None) -> str:
    return f"b{version[2]}" if system == _BUILDS and version[:2] == (0, 0) else ".".join(map(str, version))


def more_spellings(system: str) -> Mapping[str, Sequence[str]]:
    """Spellings of knobs that knobs.yaml leaves out, for one engine: knob -> names."""
    found: Mapping[str, Sequence[str]] = _raw()["more"].get(system, {})
    return found


def _newest(texts: Texts, version: Version | None) -> str | None:
    fitting = [text for since, text in texts if version is None or since <= version]
    return fitting[-1] if fitting else None


def _bare(spelling: str) -> str:
    return spelling.removeprefix("not ")


@lru_cache(maxsize=1)
def _raw() -> dict[str, Any]:
    raw: dict[str, Any] = load_plain(resources.files("infradoc_rules") / "versions.yaml")
    return raw


@lru_cache(maxsize=16)
def _rows(system: str) -> Mapping[str, Row]:
    return {spelling: _row(row, system) for spelling, row in _raw()["spellings"].get(system, {}).items()}


def _row(row: Mapping[str, Any], system: str) -> Row:
    since, until = (version_of(row.get(key), system) for key in ("since", "until"))
    on, off, form = (_texts(row.get(key), system) for key in ("switch_on", "switch_off", "form"))
    words = {value: _texts(names, system) for value, names in row.get("words", {}).items()}
    never, v0 = bool(row.get("never")), bool(row.get("v0"))
    return Row(since, until, never, on, off, form, row.get("unit"), row.get("device"), v0, words)


def _texts(entry: str | Mapping[str, str] | None, system: str) -> Texts:
    rows = {"0": entry} if isinstance(entry, str) else entry or {}
    return tuple(sorted((version_of(since, system) or (0, 0, 0), text) for since, text in rows.items()))
