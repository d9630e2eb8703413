"""The packaged log patterns, compiled: one RE2 set for all of an engine's, because logs are untrusted text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from typing import Any

import re2

from infradoc_rules.model import Value
from infradoc_rules.yaml_file import load_plain

SYSTEMS = ("vllm", "sglang", "tgi", "llamacpp", "lmdeploy", "trtllm", "ollama", "infradoc")
# Lines that any log may hold, whoever wrote it.
COMMON = ("python", "torch", "nccl", "kernel", "hardware", "training", "lengths", "installed", "refused", "errors")
_NO_PREFIX = "^(?P<msg>.*)$"
# Of these engines `prefix.take_off` knows every form of prefix; asking RE2 as well costs ten times as much.
_COVERED = frozenset({"vllm", "sglang", "tgi"})
_SET_MEMORY = 32 << 20  # bytes of automaton for all patterns together; the default of 8 MiB is too little for hundreds


class Pattern:
    """One row of a pattern file. It is compiled when its first line comes: most patterns of a log never see theirs.

    Compiled for bytes, which RE2 works on: for texts the binding counts characters anew at every match, three times
    the cost of the match itself.
    """

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.id: str = row["id"]
        self.text: str = row["pattern"]
        self.event: str | None = row.get("event")
        self.constants: Mapping[str, Value] = dict(row.get("set") or {})
        self.from_facts: Mapping[str, str] = dict(row.get("from_facts") or {})
        self.phase: str | None = row.get("phase")
        self._row = row

    @cached_property
    def regex(self) -> Any:
        """The compiled expression."""
        return re2.compile(self.text.encode())

    @cached_property
    def _groups(self) -> Mapping[str, int]:
        return {name.decode(): number for name, number in self.regex.groupindex.items()}

    @cached_property
    def fields(self) -> Mapping[str, tuple[int, float]]:
        """Event field -> number of its group, and factor."""
        groups = self._groups
        return {
            name: (groups[entry], 1.0) if isinstance(entry, str) else (groups[entry["from"]], float(entry["scale"]))
            for name, entry in (self._row.get("fields") or {}).items()
        }

    @cached_property
    def facts(self) -> Mapping[str, int]:
        """Fact name -> number of its group."""
        return {name: self._groups[group] for name, group in (self._row.get("facts") or {}).items()}


@dataclass(frozen=True)
class PatternSet:
    """The compiled patterns of one engine. `prefix` is None where none is needed beside the general ones."""

    system: str
    prefix: Any
    detect: tuple[Any, ...]
    patterns: tuple[Pattern, ...]
    search: Any  # re2.Set: which patterns occur in a line, in one pass
    functions: Mapping[str, str]  # function named in a traceback -> phase that it runs in


@lru_cache(maxsize=len(SYSTEMS) + 1)
def pattern_set(system: str | None) -> PatternSet:
    """The patterns of `system` and those any log may hold; None = the latter alone.

    Raises LookupError naming the known systems.
    """
    if system is not None and system not in SYSTEMS:
        raise LookupError(f"no log patterns for {system!r}; known: {', '.join(SYSTEMS)}")
    files = [_file(name) for name in (*_family(system), *COMMON)]
    rows = [row for raw in files for row in raw.get("patterns") or ()]
    functions = {name: phase for raw in files for name, phase in (raw.get("functions") or {}).items()}
    prefix = next((raw["prefix"] for raw in files if raw.get("prefix")), _NO_PREFIX)
    own = None if system in _COVERED or prefix == _NO_PREFIX else re2.compile(prefix)
    detectors = tuple(re2.compile(text) for text in files[0].get("detect") or ()) if system else ()
    return PatternSet(system or "", own, detectors, tuple(Pattern(row) for row in rows), _compiled(rows), functions)


@lru_cache(maxsize=8)
def event_set(event: str) -> PatternSet:
    """The patterns of all engines and of any log that make this event, and no other: a fifteenth of all."""
    names = dict.fromkeys(name for system in SYSTEMS for name in (*_family(system), *COMMON))
    rows = [row for name in names for row in _file(name).get("patterns") or () if row.get("event") == event]
    return PatternSet("", None, (), tuple(Pattern(row) for row in rows), _compiled(rows), {})


def _family(system: str | None) -> tuple[str, ...]:
    """The engine, and those whose lines its log holds too: Ollama runs llama.cpp."""
    return (system, *(_file(system).get("include") or ())) if system else ()


@lru_cache(maxsize=len(SYSTEMS))
def detectors(system: str) -> tuple[Any, ...]:
    """The expressions that tell the lines of an engine."""
    return tuple(re2.compile(text) for text in _file(system).get("detect") or ())


@lru_cache(maxsize=len(SYSTEMS))
def sole_texts(system: str) -> tuple[Any, ...]:
    """The expressions for texts that no other engine writes."""
    return tuple(re2.compile(text) for text in _file(system).get("only") or ())


@lru_cache(maxsize=len(SYSTEMS))
def own_set(system: str) -> Any:
    """The set of the patterns of this engine alone."""
    return _compiled(_file(system).get("patterns") or ())


@lru_cache(maxsize=len(SYSTEMS) + len(COMMON))
def _file(name: str) -> dict[str, Any]:
    return load_plain(resources.files("infradoc_rules.patterns") / f"{name}.yaml") or {}


def _compiled(rows: Sequence[Mapping[str, Any]]) -> Any:
    options = re2.Options()
    options.max_mem = _SET_MEMORY
    search = re2.Set.SearchSet(options)
    for row in rows:
        search.Add(row["pattern"])
    search.Compile()
    return search
