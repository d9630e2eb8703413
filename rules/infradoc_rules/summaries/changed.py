"""What changed before it: settings, version, model, GPU or driver that differ between the last good run and the one
that fails.

Two runs are compared only where their order is known: starts in one log, logs whose times do not overlap, and files
that call themselves old. Only what both state counts: what one leaves out may be a default.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from infradoc_rules.knobs import knob_table
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact, Value
from infradoc_rules.summaries.start import first_served, is_fatal

MOST = 12
PACKAGE = "package."  # facts on what is installed: package.vllm
# Beside the knobs; the order is the one in which they are told.
NAMES = (
    "target.version",
    "target.engine_api",
    "model.name",
    "model_checkpoint",
    "gpu.name",
    "gpu.count",
    "driver_version",
    "torch_version",
    "nccl.version",
    "target.device",
)
# Of these a log states what came out, not what was set.
_MEASURED = frozenset({"kv_pool_tokens", "kv_host_cache", "stats_interval"})
_HOST = frozenset({"driver_version"})  # of the machine: any later statement counts, whoever started in between
_STATED = frozenset({"flag", "config", "file"})
_OLD = lazy(r"(?i)(?:^|[^a-z])(?:old|before|prev|previous|good|yesterday|bak|original)(?:[^a-z]|$)")
_SECRET = lazy(r"(?i)key|token|secret|passw|credential")
# Anything of these between two launch lines makes them two starts: one start prints several such lines.
_MOVED = frozenset(
    {
        "model_loaded",
        "kv_allocated",
        "kv_budget",
        "graph_capture",
        "engine_initialised",
        "engine_ready",
        "engine_failed",
        "stats_line",
        "step_line",
        "http_access",
        "request_finished",
        "cuda_oom",
        "worker_died",
        "kv_no_memory",
        "weights_do_not_fit",
        "traceback",
    }
)


@dataclass(frozen=True, slots=True)
class Changed:
    """One thing that differs. `source` is where the new value stands, `time` (Unix seconds) when that run began."""

    what: str
    before: Value
    after: Value
    source: str | None = None
    time: float | None = None


@dataclass(slots=True)
class _Start:
    """One start of a server, with what it states of itself."""

    file: str
    first_line: int
    events: list[Event] = field(default_factory=list)
    facts: dict[str, Fact] = field(default_factory=dict)

    @property
    def began(self) -> float | None:
        return next((event.time for event in self.events if event.time is not None), None)

    @property
    def ended(self) -> float | None:
        return next((event.time for event in reversed(self.events) if event.time is not None), None)

    @property
    def served(self) -> bool:
        return first_served(self.events) is not None

    @property
    def failed(self) -> bool:
        return any(is_fatal(event, self.events) for event in self.events)


def changes(events: Sequence[Event], stated: Sequence[Fact]) -> list[Changed]:
    """What differs before the failure, or before the last start where none failed; at most MOST, the weightiest first.

    stated: every fact as each artefact states it, not only the last word on it.
    """
    found = [*_between_starts(events, stated), *_between_files(stated), *_of_the_host(stated)]
    once = {one.what: one for one in reversed(found)}
    return sorted(once.values(), key=lambda one: (place_of(one.what), one.what))[:MOST]


def tells(name: str) -> bool:
    """Whether a difference in this fact is a change of the set-up rather than of what came out of it."""
    if name.startswith("env."):
        return _SECRET.search(name) is None
    return name not in _MEASURED and (name in NAMES or name in knob_table() or name.startswith(PACKAGE))


def place_of(name: str) -> int:
    """Where a fact stands in the list: the version and the model before single settings."""
    return 0 if name.startswith(PACKAGE) else NAMES.index(name) if name in NAMES else len(NAMES)


def differ(before: Value, after: Value) -> bool:
    """Whether two values are truly different, however they are written."""
    return before != after and _plain(before) != _plain(after)


def _plain(value: Value) -> str:
    text = str(value).strip().strip("'\"").lower().rstrip("/")
    try:
        return format(float(text), "g")
    except ValueError:
        return text


def _between_starts(events: Sequence[Event], stated: Sequence[Fact]) -> Iterator[Changed]:
    starts = _starts(events, stated)
    pair = _pair(starts)
    if pair is None:
        return
    good, bad = pair
    if good.file != bad.file and not _apart(good, bad):
        return
    yield from _differences(good.facts, bad.facts, bad.began)


def _pair(starts: Sequence[_Start]) -> tuple[_Start, _Start] | None:
    """The last good start and the first failing one after it; where none fails, the last two."""
    served = [index for index, start in enumerate(starts) if start.served and not _broken_start(start)]
    if not served:
        return None
    bad = next((i for i, start in enumerate(starts) if start.failed and any(good < i for good in served)), None)
    if bad is None:
        bad = len(starts) - 1
    good = next((i for i in reversed(served) if i < bad), None)
    return None if good is None else (starts[good], starts[bad])


def _broken_start(start: _Start) -> bool:
    return start.failed and not start.served


def _apart(good: _Start, bad: _Start) -> bool:
    """Whether one ended before the other began: two servers at the same time are no change."""
    return good.ended is not None and bad.began is not None and good.ended <= bad.began


def _starts(events: Sequence[Event], stated: Sequence[Fact]) -> list[_Start]:
    """The starts of all logs, in time; those without times in the order of the files."""
    logs: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        file, line = _split(event.source)
        if line:
            logs[file].append(event)
    starts = [start for file, rows in logs.items() for start in _starts_in(file, rows)]
    for fact in stated:
        if fact.origin == "log" and tells(fact.name):
            _give(fact, starts)
    told = [start for start in starts if start.facts]
    return sorted(told, key=lambda start: start.began if start.began is not None else 0.0)


def _starts_in(file: str, rows: Sequence[Event]) -> Iterator[_Start]:
    start, moved = _Start(file, 0), False
    for event in rows:
        if moved and _launches(event):
            yield start
            start, moved = _Start(file, _split(event.source)[1]), False
        moved = moved or event.name in _MOVED
        start.events.append(event)
    yield start


def _launches(event: Event) -> bool:
    """Whether a server starts. Ollama also starts a process for each model that is asked for: that is no change."""
    if event.name != "launched":
        return False
    return event.fields.get("system") != "ollama" or "version" in event.fields


def _give(fact: Fact, starts: Sequence[_Start]) -> None:
    """Note a fact with the start that it was stated in. Its first value of a start is what was set."""
    file, line = _split(fact.source)
    own = [start for start in starts if start.file == file and start.first_line <= line]
    if own:
        own[-1].facts.setdefault(fact.name, fact)


def _between_files(stated: Sequence[Fact]) -> Iterator[Changed]:
    """Launch commands and the like of which one calls itself old."""
    sides: tuple[dict[str, Fact], dict[str, Fact]] = ({}, {})
    for fact in stated:
        if fact.origin in _STATED and tells(fact.name) and fact.source:
            sides[0 if _OLD.search(_split(fact.source)[0]) else 1][fact.name] = fact
    yield from _differences(*sides, None)


def _of_the_host(stated: Sequence[Fact]) -> Iterator[Changed]:
    """A driver or a package that another one follows in one file."""
    rows: dict[tuple[str, str], list[Fact]] = defaultdict(list)
    for fact in stated:
        if fact.name in _HOST or fact.name.startswith(PACKAGE):
            rows[(fact.name, _split(fact.source)[0])].append(fact)
    for (name, _), facts in rows.items():
        ordered = sorted(facts, key=lambda fact: _split(fact.source)[1])
        earlier = [fact for fact in ordered if differ(fact.value, ordered[-1].value)]
        if earlier:
            yield Changed(name, earlier[-1].value, ordered[-1].value, ordered[-1].source)


def _differences(before: Mapping[str, Fact], after: Mapping[str, Fact], time: float | None) -> Iterable[Changed]:
    for name, fact in after.items():
        old = before.get(name)
        if old is not None and differ(old.value, fact.value):
            yield Changed(name, old.value, fact.value, fact.source, time)


def _split(source: str | None) -> tuple[str, int]:
    """ "server.log:12" as its file and its line; 0 where there is no line."""
    file, _, line = (source or "").rpartition(":")
    return (file, int(line)) if file and line.isdecimal() else (source or "", 0)
