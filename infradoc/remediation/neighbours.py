"""What other programs took of the machine in two windows, and whether that alone could have moved speed. Pure.

Others are all that kept the machine busy less the server, its clients and infradoc: those follow the server's own
speed, so a fix moves them too. Time that a hypervisor gave to somebody else counts as others'.
Which limits, and what they were measured by: docs/decisions/0019.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infradoc.remediation.words import say
from infradoc_rules.schema import Verify

# Of what others leave. The tightest bound of a verdict is 5 % of throughput; a machine at rest moves by less than 1 %.
MOVED = 0.05
# Share of the time in which any task waited for a core (PSI `some`): below it, who came took nothing worth a bound.
CALM = 0.1
LEAST_COVERED = 0.5  # of a window that the snapshots must span
# Counts and states that no busier or quieter machine brings near their bounds: a fix takes them to nothing.
STEADY = frozenset(
    {
        "llm_kv_leaked_block_age_seconds",
        "llm_oom_total",
        "llm_requests_truncated_total",
        "torch_alloc_retries_total",
    }
)

Process = tuple[int, float]  # PID and Unix time of creation: numbers are given out again


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counters at one moment, all in seconds since some start.

    busy: core seconds that were not idle. waited: time in which any task waited for a core, None where the kernel does
    not say. own: CPU time of each process that is not a neighbour.
    """

    time: float
    cores: int
    busy: float
    waited: float | None
    own: Mapping[Process, float]


@dataclass(frozen=True, slots=True)
class Use:
    """One window: cores, how many of them others took on average, and the share of the time in which a task waited."""

    cores: int
    others: float
    waited: float | None

    @property
    def left(self) -> float:
        """Cores that others left: the most that the server and its clients can have had."""
        return self.cores - self.others


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What others took before a change and after it."""

    before: Use
    after: Use

    @property
    def moved(self) -> bool:
        """Whether the difference is enough to make the server faster or slower by a verdict's own bound."""
        waits = (self.before.waited, self.after.waited)
        if all(wait is not None and wait < CALM for wait in waits):
            return False
        return abs(self.after.left - self.before.left) >= MOVED * max(self.before.left, self.after.left)

    @classmethod
    def of(cls, before: Use | None, after: Use | None) -> Neighbours | None:
        """Both windows, or None where one of them was not seen."""
        return cls(before, after) if before is not None and after is not None else None


def rests_on_speed(verify: Verify) -> bool:
    """Whether what a rule names can be moved by who else uses the machine; without any metric it is throughput."""
    return not verify.metrics or any(metric.signal not in STEADY for metric in verify.metrics)


def others_took(others: Neighbours, lang: str) -> str:
    """What others took in both windows, in one sentence."""
    ends = {"before": f"{others.before.others:.2f}", "after": f"{others.after.others:.2f}"}
    return say(lang, "others_took", cores=others.after.cores, **ends)


def use_between(snapshots: Sequence[Snapshot], begin: float, end: float) -> Use | None:
    """What others took from `begin` to `end` (Unix seconds); None where too little of that was seen."""
    seen = [snapshot for snapshot in snapshots if begin <= snapshot.time <= end]
    if not seen or seen[-1].time - seen[0].time < max(LEAST_COVERED * (end - begin), 1e-3):
        return None
    first, last = seen[0], seen[-1]
    seconds = last.time - first.time
    others = (last.busy - first.busy - own_seconds(seen)) / seconds
    waited = None
    if first.waited is not None and last.waited is not None:
        waited = (last.waited - first.waited) / seconds
    return Use(last.cores, min(max(others, 0.0), float(last.cores)), waited)


def own_seconds(seen: Sequence[Snapshot]) -> float:
    """CPU seconds of all processes that are not neighbours, also of those that began or ended in between."""
    begin = seen[0].time
    first: dict[Process, float] = {}
    last: dict[Process, float] = {}
    for snapshot in seen:
        for process, seconds in snapshot.own.items():
            if process not in first:
                first[process] = seconds * share_before(begin, process[1], snapshot.time)
            last[process] = seconds
    return sum(last[process] - first[process] for process in last)


def share_before(begin: float, created: float, seen: float) -> float:
    """How much of its CPU time a process first seen at `seen` had used by `begin`, as if it had used it evenly.

    A worker that a fix starts becomes known some seconds later, a client with its next connection.
    """
    return min(max((begin - created) / (seen - created), 0.0), 1.0) if seen > created else 0.0
