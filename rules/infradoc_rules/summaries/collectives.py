"""Collectives that never end: which rank was late, doing what (collective.*), or a path that hangs (comm.hang)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries.communication import ranks_of

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
_EARLY = 8  # collectives before any step of the model: weights are broadcast, ranks meet at a barrier
_RING_WAITS = 3  # one line a minute; fewer occur while weights load or kernels compile
_SPINNING = 0.9  # utilization of a kernel that waits in a loop
_AT_WORK = 0.5  # of the power limit; waiting takes a fraction
_FATAL = frozenset({"cuda_oom", "kv_no_memory", "weights_do_not_fit", "memory_below_request", "host_oom_kill", "xid"})


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """collective.timeouts, collective.cause, collective.late_rank?, and comm.hang where several ranks are known."""
    timeouts = [event for event in events if event.name == "nccl_timeout"]
    system = system or next((str(e.fields.get("system")) for e in events if e.name == "launched"), None)
    if timeouts:
        cause, event = _cause(events, timeouts, system)
        yield Fact("collective.timeouts", len(timeouts), "derived", timeouts[0].source)
        yield Fact("collective.cause", cause, "derived", (event or timeouts[0]).source)
        rank = late_rank(events, timeouts)
        if rank is not None:
            yield Fact("collective.late_rank", rank, "derived", timeouts[0].source)
    hang, event = _hang(events, facts, timeouts, system)
    if hang is not None:
        yield Fact("comm.hang", hang, "derived", event.source if event is not None else None)


def _cause(events: Sequence[Event], timeouts: Sequence[Event], system: str | None) -> tuple[str, Event | None]:
    """Why a rank did not come: the first thing that went wrong, else what was going on when the wait began."""
    first = timeouts[0]
    earlier = [event for event in events if event.order < first.order or _file(event) != _file(first)]
    for event in earlier:
        if event.name in ("cuda_oom", "host_oom_kill"):
            return "oom", event
    for event in earlier:
        if event.name in ("xid", "gpu_lost", "device_error"):
            return "hardware", event
    for event in earlier:
        if _is_root_error(event) or event.name == "worker_died":
            return "error", event
    busy = _busy(earlier)
    if busy is not None:
        return busy
    if _is_desync(timeouts):
        return "desync", first
    for event in earlier:
        if event.name == "nccl_error" and event.fields.get("code") in ("network", "ncclRemoteError"):
            return "network", event
    if _all_at_the_first(events, timeouts, system):
        return "p2p", first
    return "unknown", first


def _file(event: Event) -> str:
    return (event.source or "").rpartition(":")[0]


def _is_root_error(event: Event) -> bool:
    if event.name != "traceback" or event.fields.get("exception") in _ECHO_TYPES:
        return False
    message = str(event.fields.get("message", ""))
    return not any(word in message for word in _ECHOES)


def _busy(earlier: Sequence[Event]) -> tuple[str, Event] | None:
    """What the last sign of life before the wait was, if it is work that one rank does alone."""
    for event in reversed(earlier):
        if event.name == "dataset_progress" and event.fields.get("what") != "prompts":
            done, total = event.fields.get("done"), event.fields.get("total")
            return ("data", event) if isinstance(done, int) and isinstance(total, int) and done < total else None
        if event.name == "checkpoint_io":
            return "checkpoint", event
        if event.name == "rank_busy":
            return str(event.fields["what"]), event
        if event.name in ("train_step", "stats_line"):
            return None
    return None


def _is_desync(timeouts: Sequence[Event]) -> bool:
    """Ranks wait in different collectives: one of them took another branch."""
    where = {(event.fields.get("sequence"), event.fields.get("collective")) for event in timeouts}
    ranks = {event.fields.get("rank") for event in timeouts}
    return len(where) > 1 and len(ranks) > 1


def _all_at_the_first(events: Sequence[Event], timeouts: Sequence[Event], system: str | None) -> bool:
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


def _hang(
    events: Sequence[Event], facts: Mapping[str, Fact], timeouts: Sequence[Event], system: str | None
) -> tuple[str | None, Event | None]:
    """ "stalled", "blocked", "wrong_data" or "none"; None where no second rank on the host is known."""
    wrong = next((e for e in events if e.name == "p2p_blocked" and e.fields.get("by") == "wrong_data"), None)
    blocked = next((e for e in events if e.name == "p2p_blocked" and e.fields.get("by") in ("acs", "iommu")), None)
    garbled = any(event.name == "output_invalid" for event in events)
    if wrong is None and blocked is not None and garbled and _peers(events, facts):
        wrong = blocked  # several ranks, answers that are no language, and a path that changes peer traffic
    if wrong is not None:
        return "wrong_data", wrong
    if not _peers(events, facts):
        return None, None
    if facts.get("topo.nvlink") is not None and facts["topo.nvlink"].value is True:
        return "none", None
    stall = _stall(events, timeouts, system) or _busy_for_nothing(events, facts)
    if stall is None or any(event.name in _FATAL or _is_root_error(event) for event in events):
        return "none", None
    return ("blocked", blocked) if blocked is not None else ("stalled", stall)


def _peers(events: Sequence[Event], facts: Mapping[str, Fact]) -> bool:
    """Several ranks of one host talk through NCCL."""
    several = ranks_of(events) > 1
    if several:
        nodes = facts.get("comm.nodes")
        return nodes is None or nodes.value == 1
    size = facts.get("tensor_parallel_size")
    return "nccl.version" in facts and size is not None and isinstance(size.value, int) and size.value > 1


def _busy_for_nothing(events: Sequence[Event], facts: Mapping[str, Fact]) -> Event | None:
    """The last rank that joined, where the devices run at full utilization and the log goes no further."""
    utilization, power = facts.get("gpu.utilization"), facts.get("gpu.power_share")
    if utilization is None or not isinstance(utilization.value, int | float) or utilization.value < _SPINNING:
        return None
    if power is not None and isinstance(power.value, int | float) and power.value > _AT_WORK:
        return None
    joined = [event for event in events if event.name == "nccl_ready"]
    signs = ("train_step", "stats_line", "step_line", "engine_ready", "request_finished", "nccl_bandwidth")
    return joined[-1] if joined and not any(event.name in signs for event in events) else None


def _stall(events: Sequence[Event], timeouts: Sequence[Event], system: str | None) -> Event | None:
    """The sign that nothing has moved since the ranks met; None when something did, or nothing was asked of them."""
    moved = any(
        event.name in ("train_step", "request_finished", "nccl_bandwidth")
        or (event.name == "stats_line" and (event.fields.get("generation_rate") or 0) != 0)
        for event in events
    )
    if moved:
        return None
    prompts = [e for e in events if e.name == "dataset_progress" and e.fields.get("what") == "prompts"]
    if prompts and prompts[-1].fields.get("done") == 0:
        return prompts[-1]
    if timeouts and _all_at_the_first(events, timeouts, system):
        return timeouts[0]
    waits = [event for event in events if event.name == "shm_ring_wait"]
    if sum(event.repeat for event in waits) >= _RING_WAITS:
        return waits[-1]
    bench = [e for e in events if e.name == "rank_busy" and e.fields.get("what") == "nccl-tests"]
    if bench:
        return bench[-1]
    held = ("all_reduce", "allreduce", "ncclAllReduce", "pynccl", "synchronize")
    stacks = [e for e in events if e.name == "stack_sample" and any(word in str(e.fields.get("top")) for word in held)]
    return stacks[-1] if stacks else None
