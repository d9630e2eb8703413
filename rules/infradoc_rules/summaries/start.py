"""How far a start came: whether the last attempt served anything, and where and by what it broke off.

Facts: start.ready, start.attempts, start.failed, start.failed_phase, start.failed_by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from infradoc_rules.fatal import END_A_START
from infradoc_rules.model import Event, Fact

# What only a server, or a training run, that works says.
SERVING = frozenset({"engine_ready", "stats_line", "step_line", "request_finished", "train_step"})
_PROGRESS = frozenset({"model_loaded", "kv_allocated", "graph_capture", "engine_initialised", "memory_account"})
_ECHOES = frozenset({"engine_failed", "worker_died", "traceback"})
# What an artefact beside the log may add anywhere: it says nothing on the order of the attempts.
_BESIDE = frozenset({"launched", "gpu_process", "gpu_clocks_reason", "topology_link"})


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """The facts above, from the last attempt to start."""
    if not events:
        return
    runs = attempts(events)
    last = runs[-1]
    ready = first_served(last)
    stops = [event for event in last if ready is None and is_fatal(event, last)]
    # "The engine failed to start" stands above what it failed by.
    stop = next((event for event in stops if event.name not in _ECHOES), stops[0] if stops else None)
    failed = stop is not None
    yield Fact("start.ready", ready is not None, "derived", ready.source if ready else None)
    yield Fact("start.attempts", len(runs), "derived")
    yield Fact("start.failed", failed, "derived", stop.source if failed and stop else None)
    if failed and stop is not None:
        yield Fact("start.failed_by", stop.name, "derived", stop.source)
        phase = shown_phase(stop, last)
        if phase is not None:
            yield Fact("start.failed_phase", phase, "derived", stop.source)


def shown_phase(stop: Event, run: Sequence[Event]) -> str | None:
    """The phase that a start broke off in, where something shows it.

    Every log is read from "launch" on: that phase is known only where a banner stands before the failure and no mark
    of a later one could be missing. Device memory that runs out a while after the banner may have run out anywhere.
    """
    if stop.phase != "launch":
        return stop.phase
    banner = next((event for event in run if event.name == "launched" and event.order < stop.order), None)
    if banner is None or stop.name == "cuda_oom":
        return None
    return stop.phase


def attempts(events: Sequence[Event]) -> list[Sequence[Event]]:
    """The events of each attempt to start: a banner after a failure, or after the same server had served, begins a new
    one. At least one."""
    ends = {_file(event): event.order for event in events}
    runs: list[list[Event]] = [[]]
    broken = False
    served: set[str] = set()  # logs of which this attempt has answered
    for event in events:
        if event.name == "launched" and (broken or _again(event, served, ends)):
            runs.append([])
            broken, served = False, set()
        broken = broken or event.name in END_A_START or refuses(event)
        if event.name in SERVING or _answered(event):
            served.add(_file(event))
        runs[-1].append(event)
    said = [run for run in runs if any(event.name not in _BESIDE for event in run)]
    if len(said) > 1 and first_served(said[-1]) is None and not any(is_fatal(event, said[-1]) for event in said[-1]):
        said.pop()  # a crash loop that was cut off in the middle of an attempt: the one before says why
    return list(said or [list(events)])


def _again(event: Event, served: set[str], ends: Mapping[str, int]) -> bool:
    """Whether a banner follows a server that answered: in its own log, or in a log that begins where that one ended."""
    return bool(served) and all(file == _file(event) or ends[file] < event.order for file in served)


def _file(event: Event) -> str:
    return (event.source or "").rpartition(":")[0]


def first_served(run: Sequence[Event]) -> Event | None:
    """The first event that shows the server answering: its own word, or an answered request that is no probe."""
    return next((event for event in run if event.name in SERVING or _answered(event)), None)


def _answered(event: Event) -> bool:
    if event.name != "http_access" or event.fields.get("code") != 200:
        return False
    return "/completions" in str(event.fields.get("path")) or "/generate" in str(event.fields.get("path"))


def refuses(event: Event) -> bool:
    """A setting that the engine does not start with: too little KV for one request, a length above the model's."""
    if event.name == "kv_budget":
        return event.fields.get("fits") is False
    return event.name == "length_above_model" and event.fields.get("fatal") is not False


def is_fatal(event: Event, run: Sequence[Event]) -> bool:
    """Whether a start ends with this event. A traceback counts when the start does not go on after it."""
    if event.name in END_A_START or refuses(event):
        return True
    if event.name != "traceback":
        return False
    return not any(later.name in _PROGRESS and later.order > event.order for later in run)
