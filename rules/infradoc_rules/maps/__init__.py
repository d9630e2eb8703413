"""Signal maps: each engine's metric names to ours, one YAML file per engine; every scraped sample passes here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import resources
from typing import Any

from infradoc_rules.maps.info import HANDLERS, InfoReading
from infradoc_rules.signals import HISTOGRAM_SUFFIXES, signal_table
from infradoc_rules.yaml_file import load_plain

SYSTEMS = ("vllm", "sglang", "tgi", "llamacpp", "lmdeploy", "trtllm", "infradoc")


@dataclass(frozen=True, slots=True)
class _Rule:
    """How one raw series name becomes a canonical one."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    set: Mapping[str, str] = field(default_factory=dict)
    drop: frozenset[str] = frozenset()
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    where: Mapping[str, frozenset[str]] = field(default_factory=dict)
    totals: frozenset[str] = frozenset()
    scale: float = 1.0

    def labels_of(self, raw: Mapping[str, str]) -> dict[str, str] | None:
        """Canonical labels of a sample, or None when `where` or `totals` leaves it out."""
        if any(raw.get(label) not in allowed for label, allowed in self.where.items()):
            return None
        if any(raw.get(label) for label in self.totals):
            return None
        out = {self.labels.get(name, name): value for name, value in raw.items() if name not in self.drop}
        out.update(self.set)
        for label, table in self.values.items():
            if label in out:
                out[label] = table.get(out[label], out[label])
        return out


@dataclass(frozen=True)
class SignalMap:
    """The map of one engine.

    names: raw series names worth keeping (histogram suffixes and `_total` variants spelled out).
    provides: canonical signals that this engine can give; a counter outside it is "no data", never 0.
    ranks: labels that tell processes apart which do the same work together. Each of them counts all of it, so series
    that differ only in these are one and the largest value is it; a sum would multiply by their number.
    """

    system: str
    names: frozenset[str]
    provides: frozenset[str]
    ranks: frozenset[str]
    _rules: Mapping[str, _Rule]
    _info: Mapping[str, str]

    def apply(self, name: str, labels: Mapping[str, str]) -> tuple[str, dict[str, str], float] | None:
        """(canonical series name, canonical labels, factor for the value) of one raw sample; None to ignore it."""
        rule = self._rules.get(name)
        if rule is None:
            return None
        mapped = rule.labels_of(labels)
        return None if mapped is None else (rule.name, mapped, rule.scale)

    def info(self, name: str, labels: Mapping[str, str], value: float = 1.0) -> InfoReading | None:
        """Facts and derived samples of an info metric; None when `name` is none. Independent of `apply`."""
        handler = self._info.get(name)
        return None if handler is None else HANDLERS[handler](labels, value)


def detect(page: str | Iterable[str]) -> str | None:
    """The engine behind a metrics page (its text) or a set of metric names; None when it is none we know."""
    names = _names_in(page) if isinstance(page, str) else page
    prefixes = {prefix: system for system in SYSTEMS for prefix in _raw(system)["detect"]}
    found = {system for name in names for prefix, system in prefixes.items() if name.startswith(prefix)}
    return next((system for system in SYSTEMS if system in found), None)


@lru_cache(maxsize=len(SYSTEMS))
def _load(system: str) -> SignalMap:
    raw = _raw(system)
    rules: dict[str, _Rule] = {}
    provides = set(raw.get("derived") or ())
    every = raw.get("every") or {}
    if raw.get("identity"):
        rules = {name: _Rule(name) for name in signal_table().series_names()}
        provides |= set(signal_table().signals)
    for theirs, entry in (raw.get("metrics") or {}).items():
        spec = {"to": entry} if isinstance(entry, str) else entry
        provides.add(spec["to"])
        rules.update(_expand(theirs, spec, every))
    info = dict(raw.get("info") or {})
    ranks = frozenset(every.get("ranks") or ())
    return SignalMap(system, frozenset(rules) | frozenset(info), frozenset(provides), ranks, rules, info)


def load_map(system: str) -> SignalMap:
    """The map of `system` (a name of SYSTEMS), for all of its versions: no name has changed its meaning between two.

    Raises LookupError naming the known ones.
    """
    if system not in SYSTEMS:
        raise LookupError(f"no signal map for {system!r}; known systems: {', '.join(SYSTEMS)}")
    return _load(system)


@lru_cache(maxsize=len(SYSTEMS))
def _raw(system: str) -> dict[str, Any]:
    raw: dict[str, Any] = load_plain(resources.files("infradoc_rules.maps") / f"{system}.yaml")
    return raw


def _expand(theirs: str, spec: Mapping[str, Any], every: Mapping[str, Any]) -> dict[str, _Rule]:
    target = signal_table().signals[spec["to"]]
    totals = frozenset(every.get("totals") or ()) if target.kind == "gauge" else frozenset()
    left_out = [*(every.get("drop") or ()), *(every.get("ranks") or ()), *totals, *(spec.get("drop") or ())]
    rule = _Rule(
        name=target.name,
        labels={**(every.get("labels") or {}), **(spec.get("labels") or {})},
        set=dict(spec.get("set") or {}),
        drop=frozenset(left_out),
        values=dict(spec.get("values") or {}),
        where={label: frozenset(allowed) for label, allowed in (spec.get("where") or {}).items()},
        totals=totals,
        scale=float(spec.get("scale", 1.0)),
    )
    if target.kind == "histogram":
        return {theirs + suffix: _renamed(rule, target.name + suffix) for suffix in HISTOGRAM_SUFFIXES}
    if target.kind == "counter" and not theirs.endswith("_sum"):
        # Clients add or strip `_total` on their own account, so a counter is known under both spellings.
        return {theirs: rule, theirs.removesuffix("_total"): rule, theirs.removesuffix("_total") + "_total": rule}
    return {theirs: rule}


def _renamed(rule: _Rule, name: str) -> _Rule:
    return replace(rule, name=name)


def _names_in(page: str) -> set[str]:
    lines = (line for line in page.splitlines() if line and not line.startswith("#"))
    return {line.split("{", 1)[0].split(" ", 1)[0] for line in lines}
