"""Collectives that never end: which rank was late, doing what: facts collective.*."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries.links import ranks_of

_ECHOES = ("NCCL", "Watchdog", "ProcessGroup", "timed out", "timeout", "collective", "Connection reset", "Broken pipe")
_ECHO_TYPES = frozenset(
    {
        "DistBackendError",
        "DistStoreError",
        "DistNetworkError",
        "ChildFailedError",
        "SignalException",
        "KeyboardInterrupt",
    }
)
# What the program is told when a connection broke below; older versions call it an internal error.
_SURFACED = frozenset({"ncclSystemError", "ncclInternalError"})
_EARLY = 8  # collectives before any step of the model: weights are broadcast, ranks meet at a barrier


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """collective.timeouts, collective.cause, collective.late_rank?."""
    timeouts = timeouts_of(events)
    system = system or next((str(e.fields.get("system")) for e in events if e.name == "launched"), None)
    if timeouts:
        cause, event = _cause(events, timeouts, system)
        yield Fact("collective.timeouts", len(timeouts), "derived", timeouts[0].source)
        yield Fact("collective.cause", cause, "derived", (event or timeouts[0]).source)
        rank = late_rank(events, timeouts)
        if rank is not None:
            yield Fact("collective.late_rank", rank, "derived", timeouts[0].source)
    elif lost := _lost(events):
        cause, event = _cause(events, lost, system)
        # Nobody waited until a limit: what is known is that a rank or its host went away.
        cause = cause if cause in ("oom", "hardware", "error", "stopped") else "gone"
        yield Fact("collective.cause", cause, "derived", (event or lost[0]).source)


def timeouts_of(events: Sequence[Event]) -> list[Event]:
    """The waits that ended; what a rank writes down because of one counts where nothing else was pasted."""
    found = [event for event in events if event.name == "nccl_timeout"]
    return [event for event in found if event.fields.get("backend") != "dump"] or found


def _lost(events: Sequence[Event]) -> list[Event]:
    """Connections between ranks that broke and ended the run; what NCCL tries again, or a normal end, is none."""
    errors = [event for event in events if event.name == "nccl_error"]
    broken = [event for event in errors if event.fields.get("code") in ("ncclRemoteError", "lost")]
    failed = any(event.name == "traceback" and event.fields.get("exception") in _ECHO_TYPES for event in events)
    failed = failed or any(event.fields.get("code") in _SURFACED for event in errors)
    return broken or [event for event in errors if failed and event.fields.get("code") == "network"]


def _cause(events: Sequence[Event], timeouts: Sequence[Event], system: str | None) -> tuple[str, Event | None]:
    """Why a rank did not come: the first thing that went wrong, else what was going on when the wait began."""
    first = timeouts[0]
    earlier = [event for event in events if event.order < first.order or _file(event) != _file(first)]
    for event in earlier:
        if _file(event) == _file(first) and _is_stop(event):
            return "stopped", event
    for event in earlier:
        if event.name in ("cuda_oom", "host_oom_kill"):
            return "oom", event
    for event in earlier:
        if event.name in ("xid", "gpu_lost", "device_error"):
            return "hardware", event
    for event in earlier:
        if is_root_error(event) or event.name == "worker_died":
            return "error", event
    busy = _busy(earlier)
    if busy is not None:
        return busy
    absent = next((event for event in timeouts if event.fields.get("backend") == "rendezvous"), None)
    if absent is not None:
        return "absent", absent
    if _is_desync(timeouts):
        return "desync", first
    for event in earlier:
        if event.name == "nccl_error" and event.fields.get("code") in ("network", "ncclRemoteError", "lost"):
            return "network", event
    if all_at_the_first(events, timeouts, system):
        return "p2p", first
    return "unknown", first


def _file(event: Event) -> str:
    return (event.source or "").rpartition(":")[0]


def is_root_error(event: Event) -> bool:
    """An exception that is no echo of what happened to another rank."""
    if event.name != "traceback" or event.fields.get("exception") in _ECHO_TYPES:
        return False
    message = str(event.fields.get("message", ""))
    return not any(word in message for word in _ECHOES)


def _is_stop(event: Event) -> bool:
    """Somebody ended the run: a key, a batch system, a signal from outside."""
    if event.name == "traceback":
        return event.fields.get("exception") in ("KeyboardInterrupt", "SignalException")
    # A batch system that ends a job because one of its hosts broke down stops nothing that was sound.
    host_failed = "FAILURE" in (event.text or "")
    return event.name == "rank_busy" and event.fields.get("what") == "stopped" and not host_failed


def _busy(earlier: Sequence[Event]) -> tuple[str, Event] | None:
    """What the last sign of life before the wait was, if it is work that one rank does alone."""
    for event in reversed(earlier):
        if event.name == "dataset_progress" and event.fields.get("what") != "prompts":
            done, total = event.fields.get("done"), event.fields.get("total")
            return ("data", event) if isinstance(done, int) and isinstance(total, int) and done < total else None
        if event.name == "checkpoint_io":
            return "checkpoint", event
        if event.name == "rank_busy" and event.fields.get("what") != "stopped":
            return str(event.fields["what"]), event
        if event.name in ("train_step", "stats_line"):
            return None
    return None


def _is_desync(timeouts: Sequence[Event]) -> bool:
    """Ranks wait in different collectives: one of them took another branch."""
    ranks = {event.fields.get("rank") for event in timeouts}
    places = ({event.fields[name] for event in timeouts if name in event.fields} for name in ("sequence", "collective"))
    return len(ranks) > 1 and any(len(place) > 1 for place in places)


def all_at_the_first(events: Sequence[Event], timeouts: Sequence[Event], system: str | None) -> bool:
    """Every rank waits, in one of the first collectives, and no step was ever made: nobody is late, the path hangs.

    The ranks of a server have nothing to do on their own then, and the first watchdog ends them all: half is enough.
    """
    ranks = {event.fields.get("rank") for event in timeouts}
    known = ranks_of(events)
    everyone = len(ranks) >= 2 and ranks == set(range(known or len(ranks)))
    if system is not None and known > 1 and 2 * len(ranks) >= known:
        everyone = True
    early = all(isinstance(n := event.fields.get("sequence"), int) and n <= _EARLY for event in timeouts)
    return everyone and early and not any(event.name == "train_step" for event in events)


def late_rank(events: Sequence[Event], timeouts: Sequence[Event]) -> int | None:
    """The one rank that did not report, or that is behind the others; None when it cannot be told."""
    ranks = {int(rank) for event in timeouts if isinstance(rank := event.fields.get("rank"), int)}
    if not ranks:
        return None
    world = max(ranks_of(events), max(ranks) + 1)
    missing = set(range(world)) - ranks
    if len(missing) == 1:
        return missing.pop()
    by_rank: dict[int, int] = {}
    for event in timeouts:
        rank, sequence = event.fields.get("rank"), event.fields.get("sequence")
        if isinstance(rank, int) and isinstance(sequence, int):
            by_rank[rank] = min(sequence, by_rank.get(rank, sequence))
    lowest = [rank for rank, sequence in by_rank.items() if sequence == min(by_rank.values())]
    return lowest[0] if len(lowest) == 1 and len(by_rank) > 1 else None
