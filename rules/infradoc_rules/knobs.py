"""Canonical knobs and each engine's spelling (`knobs.yaml`)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from infradoc_rules.model import Value
from infradoc_rules.versions import Running, more_spellings
from infradoc_rules.yaml_file import load_plain

SYSTEMS = ("vllm", "sglang", "tgi", "llamacpp", "lmdeploy", "trtllm", "ollama")
_POSITIONAL = frozenset({"model_checkpoint"})  # the bundled engine takes its model without a flag
_NEGATION = "not "
_SIZE = re.compile(r"(\d+(?:\.\d+)?) (MiB|GiB)")
_SIZES = {"MiB": float(1 << 20), "GiB": float(1 << 30)}


@dataclass(frozen=True, slots=True)
class Knob:
    """One knob. `spellings` per engine, first the usual one; "not X" switches the opposite way."""

    name: str
    means: str
    unit: str | None
    values: str
    spellings: Mapping[str, tuple[str, ...]]
    also: tuple[str, ...]
    engine: str | None  # name in the bundled engine, None when it has no such knob
    live: str | None  # how the bundled engine takes a change: live, drain, restart


@dataclass(frozen=True)
class Knobs:
    """All knobs by canonical name. Build it with `knob_table()`."""

    by_name: Mapping[str, Knob]

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def __getitem__(self, name: str) -> Knob:
        return self.by_name[name]

    def spelling(self, system: str | None, name: str, running: Running | None = None) -> str | None:
        """What the user of `system` calls the knob (a flag, variable or request field); None when it has none.

        With `running`, as that version spells it: None when it lacks the knob.
        """
        knob = self.by_name[name]
        if system == "infradoc":
            bare = knob.engine is None or name in _POSITIONAL
            return None if bare else "--" + str(knob.engine).replace("_", "-")
        names = knob.spellings.get(system or "", ()) or knob.also
        if running is not None:
            return running.best(names)
        return names[0] if names else None

    def flag(
        self, system: str | None, name: str, value: Value | None = None, running: Running | None = None
    ) -> str | None:
        """The spelling with its value, as typed on a command line: `--max-num-seqs 8`, `OMP_NUM_THREADS=6`.

        A switch to be off, or one that switches the opposite way, is left out: `drop --disable-radix-cache`.
        """
        spelling = self.spelling(system, name, running)
        if spelling is None:
            return None
        running = running or Running(system)
        bare = spelling.removeprefix(_NEGATION)
        if value is None:
            return bare
        if isinstance(value, bool):
            return _switch(spelling, value, running)
        text = running.word(spelling, _counted(value, running.unit(spelling)))
        form = running.form(spelling)
        if form is not None:
            return form.format(value=text)
        if " " in text and not text.startswith(("'", '"')):
            return bare  # words for a reader, not a value to type
        return f"{bare} {text}" if bare.startswith("-") else f"{bare}={text}"

    def live(self, system: str | None, name: str) -> bool:
        """Whether the bundled engine takes the knob while requests run; no other engine does for a sizing knob."""
        return system == "infradoc" and self.by_name[name].live == "live"

    def resolve(self, system: str | None, spelling: str) -> tuple[str, bool] | None:
        """(canonical name, switches the opposite way?) of a flag, variable, request field or canonical name."""
        key = _normal(spelling)
        table = _aliases(system or "")
        return table.get(key)


@lru_cache(maxsize=1)
def knob_table() -> Knobs:
    """The packaged table, read once."""
    raw: dict[str, Any] = load_plain(resources.files("infradoc_rules") / "knobs.yaml")
    return Knobs({name: _knob(name, row) for name, row in raw["knobs"].items()})


def _knob(name: str, row: Mapping[str, Any]) -> Knob:
    named = {system: (*_names(row.get(system)), *more_spellings(system).get(name, ())) for system in SYSTEMS}
    spellings = {system: names for system, names in named.items() if names}
    live = (row.get("live") or {}).get("engine")
    return Knob(
        name, row["means"], row.get("unit"), str(row["values"]), spellings, _names(row.get("also")), row["engine"], live
    )


def _names(entry: Any) -> tuple[str, ...]:
    return () if not entry else (entry,) if isinstance(entry, str) else tuple(entry)


@lru_cache(maxsize=len(SYSTEMS) + 2)
def _aliases(system: str) -> Mapping[str, tuple[str, bool]]:
    table: dict[str, tuple[str, bool]] = {}
    for knob in knob_table().by_name.values():
        own = knob.spellings.get(system, ())
        for spelling in (*knob.also, *own):
            key = _normal(spelling.removeprefix(_NEGATION))
            if spelling in own or key not in table:  # the engine's own spelling wins over a general one
                table[key] = (knob.name, spelling.startswith(_NEGATION))
    return {**table, **{name: (name, False) for name in knob_table().by_name}}


def _normal(spelling: str) -> str:
    return re.split(r"[ =]", spelling.strip(), maxsplit=1)[0].lstrip("-").replace("-", "_").lower()


def _switch(spelling: str, value: bool, running: Running) -> str:
    bare = spelling.removeprefix(_NEGATION)
    on = value is not spelling.startswith(_NEGATION)
    worded = running.on(spelling) if on else running.off(spelling)
    if worded is not None:
        return worded
    if bare.startswith("-"):
        return bare if on else f"drop {bare}"
    return f"{bare}={str(on).lower()}"


def _counted(value: Value, unit: float | None) -> str:
    """A value as typed: numbers and sizes ("8 GiB") in what the flag counts."""
    size = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if unit is not None and size is not None:
        value = float(size[1]) * _SIZES[size[2]]
    if unit is not None and isinstance(value, int | float):
        value = value / unit
        value = math.floor(value) if value >= 1 else value  # several of these flags take whole numbers alone
    return f"{value:g}" if isinstance(value, float) else str(value)
