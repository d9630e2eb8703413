"""The closed table of canonical signals, events and phases (`signals.yaml`), and how an absent series is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from infradoc_rules.yaml_file import load_plain

HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")


@dataclass(frozen=True, slots=True)
class SignalSpec:
    """One canonical signal. `absent` is `no_data` or `zero_if_sibling_present`."""

    name: str
    kind: str
    unit: str | None
    labels: tuple[str, ...]
    means: str
    absent: str
    row: str | None

    @property
    def series(self) -> tuple[str, ...]:
        """The series names it is exposed under: three for a histogram, one otherwise."""
        if self.kind == "histogram":
            return tuple(self.name + suffix for suffix in HISTOGRAM_SUFFIXES)
        return (self.name,)


@dataclass(frozen=True, slots=True)
class EventSpec:
    """One canonical event: field name to type; `required` are the fields that are always there."""

    name: str
    means: str
    fields: Mapping[str, str]
    required: frozenset[str]


@dataclass(frozen=True)
class SignalTable:
    """All canonical names. Build it with `signal_table()`."""

    signals: Mapping[str, SignalSpec]
    events: Mapping[str, EventSpec]
    phases: tuple[str, ...]

    def resolve(self, series_name: str) -> SignalSpec | None:
        """The signal behind a series name; histogram series are resolved by their suffix. None when unknown."""
        spec = self.signals.get(series_name)
        if spec is not None:
            return spec if spec.kind != "histogram" else None
        for suffix in HISTOGRAM_SUFFIXES:
            base = self.signals.get(series_name.removesuffix(suffix)) if series_name.endswith(suffix) else None
            if base is not None and base.kind == "histogram":
                return base
        return None

    def series_names(self) -> frozenset[str]:
        """Every series name that may exist."""
        return frozenset(name for spec in self.signals.values() for name in spec.series)


def family(name: str) -> str:
    """The family of a signal: its prefix up to the first underscore (`llm`, `proc`, `gpu`, `client`, ...)."""
    return name.split("_", 1)[0]


def absent_reads_zero(name: str, present: Iterable[str], provides: frozenset[str] | None) -> bool:
    """Whether a series that is not there reads as 0 instead of "no data".

    name: a series name. present: names that have samples. provides: canonical signals that this target's map can
    give at all (`SignalMap.provides`), or None when unknown; a counter that the engine never has is no zero.
    """
    spec = signal_table().resolve(name)
    if spec is None or spec.absent != "zero_if_sibling_present":
        return False
    if provides is not None and family(name) == "llm" and spec.name not in provides:
        return False
    return any(family(other) == family(name) for other in present)


@lru_cache(maxsize=1)
def signal_table() -> SignalTable:
    """The packaged table, read once."""
    raw: dict[str, Any] = load_plain(resources.files("infradoc_rules") / "signals.yaml")
    signals = {
        name: SignalSpec(
            name,
            row["kind"],
            row.get("unit"),
            tuple(row.get("labels") or ()),
            row["means"],
            row["absent"],
            row.get("row"),
        )
        for name, row in raw["signals"].items()
    }
    events = {name: _event(name, row) for name, row in raw["events"].items()}
    return SignalTable(signals, events, tuple(row["name"] for row in raw["phases"]))


def _event(name: str, row: Mapping[str, Any]) -> EventSpec:
    fields = {field: str(kind) for field, kind in (row.get("fields") or {}).items()}
    required = frozenset(field for field, kind in fields.items() if kind.endswith("!"))
    return EventSpec(name, row["means"], {field: kind.rstrip("!") for field, kind in fields.items()}, required)
