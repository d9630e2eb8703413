"""Copies between devices that never end, crawl or arrive wrong: fact comm.hang."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from infradoc_rules.fatal import END_A_WAIT
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries.collectives import all_at_the_first, is_root_error, timeouts_of
from infradoc_rules.summaries.links import ranks_of
from infradoc_rules.summaries.load import fact

_RING_WAITS = 3  # one line a minute; fewer occur while weights load or kernels compile
_RING_WAITS_WITHOUT_PEERS = 2  # where the platform's test of direct copies failed before
_DETOUR = 0.5  # of the rate without peer access; a direct copy is never slower than one with a stop on the way
_SPINNING = 0.9  # utilization of a kernel that waits in a loop
_AT_WORK = 0.5  # of the power limit; waiting takes a fraction
_SENTENCE = lazy(r"[.;!?。；！](?:\s|$)|[。；]")
_WORKS = lazy(
    r"(?i)\b(?:works?|worked|working|trains?|runs? (?:fine|ok|well|through)|runs$|fixe[sd]|fix|solve[sd]?|resolve[sd]?"
    r"|helps?|helped|fine|okay|ok|completes?|passes|finishes)\b|解决|正常|可以|好了"
)
_FAILS = lazy(r"(?i)\bnot?\b|n't\b|\bstill\b|\balso hangs?\b|\bhangs? (?:as well|too|again)\b|仍|还是|没有|不行")
_PROGRESS = frozenset({"train_step", "request_finished", "nccl_bandwidth", "engine_ready", "stats_line"})
_ENDED = frozenset({"traceback", "nccl_error", "engine_failed"})


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """comm.hang, where several ranks of one host are known or a copy was seen to fail."""
    timeouts = timeouts_of(events)
    system = system or next((str(e.fields.get("system")) for e in events if e.name == "launched"), None)
    hang, event = _hang(events, facts, timeouts, system)
    if hang is not None:
        yield Fact("comm.hang", hang, "derived", event.source if event is not None else None)


def _hang(
    events: Sequence[Event], facts: Mapping[str, Fact], timeouts: Sequence[Event], system: str | None
) -> tuple[str | None, Event | None]:
    """ "stalled", "blocked", "refused", "slow", "wrong_data" or "none"; None where no second rank is known."""
    wrong = next((e for e in events if e.name == "p2p_blocked" and e.fields.get("by") == "wrong_data"), None)
    blocked = next((e for e in events if e.name == "p2p_blocked" and e.fields.get("by") in ("acs", "iommu")), None)
    garbled = any(event.name == "output_invalid" for event in events)
    if wrong is None and garbled and "env.GGML_CUDA_P2P" in facts and _devices(facts) > 1:
        wrong = next(event for event in events if event.name == "output_invalid")
    if wrong is None and blocked is not None and garbled and _peers(events, facts):
        wrong = blocked  # several ranks, answers that are no language, and a path that changes peer traffic
    if wrong is not None:
        return "wrong_data", wrong
    refused = next((e for e in events if e.name == "p2p_blocked" and e.fields.get("by") == "refused"), None)
    if refused is not None and ("Error" in (refused.text or "") or any(event.name in _ENDED for event in events)):
        return "refused", refused
    slow = next((event for event in events if event.name == "p2p_bandwidth" and _slower_as_peers(event)), None)
    if slow is not None:
        return "slow", slow
    told = next((event for event in events if is_told_cure(event)), None)
    if told is not None and not any(event.name in _PROGRESS or event.name in END_A_WAIT for event in events):
        return "stalled", told
    probe = _probe_that_hangs(events)
    if probe is not None:
        return "stalled", probe
    if not _peers(events, facts):
        return None, None
    if facts.get("topo.nvlink") is not None and facts["topo.nvlink"].value is True:
        return "none", None
    stall = _stall(events, timeouts, system) or _busy_for_nothing(events, facts) or _cured(events, timeouts, system)
    stall = stall or _blocked_for_good(events, blocked or _first_of(events, "iommu_on"))
    if stall is None or any(event.name in END_A_WAIT or is_root_error(event) for event in events):
        return "none", None
    return ("blocked", blocked) if blocked is not None else ("stalled", stall)


def _slower_as_peers(event: Event) -> bool:
    """Whether direct copies never end, or are far slower than those through memory of the host: they take a detour."""
    direct, around = event.fields.get("with_peer"), event.fields.get("without_peer")
    if event.fields.get("unfinished") is True:
        return True
    return isinstance(direct, int | float) and isinstance(around, int | float) and direct < _DETOUR * around


def _peers(events: Sequence[Event], facts: Mapping[str, Fact]) -> bool:
    """Several ranks of one host talk through NCCL."""
    # An engine turns its own all-reduce off only where it has several ranks.
    if ranks_of(events) > 1 or any(event.name == "p2p_disabled" for event in events):
        nodes = facts.get("comm.nodes")
        return nodes is None or nodes.value == 1
    size = facts.get("tensor_parallel_size")
    if "nccl.version" in facts and size is None:  # all devices of the host spin
        return (fact(facts, "gpu.count") or 0) > 1 and (fact(facts, "gpu.utilization") or 0) >= _SPINNING
    return "nccl.version" in facts and size is not None and isinstance(size.value, int) and size.value > 1


def _devices(facts: Mapping[str, Fact]) -> int:
    """Devices of one host that llama.cpp uses; 0 where it does not say."""
    return int(fact(facts, "llamacpp.devices") or 0)


def _first_of(events: Sequence[Event], by: str) -> Event | None:
    return next((event for event in events if event.name == "p2p_blocked" and event.fields.get("by") == by), None)


def _probe_that_hangs(events: Sequence[Event]) -> Event | None:
    """The engine's own test of direct copies, where somebody broke the run off and nothing else had come."""
    for event, after in pairwise(events):
        if event.name == "p2p_blocked" and event.fields.get("by") == "probe" and _is_broken_off(after):
            return event
    return None


def _is_broken_off(event: Event) -> bool:
    if event.name == "traceback":
        return event.fields.get("exception") == "KeyboardInterrupt"
    return event.name == "rank_busy" and event.fields.get("what") == "stopped"


def _blocked_for_good(events: Sequence[Event], blocked: Event | None) -> Event | None:
    """What blocks direct copies, where they were chosen and nothing came of it: the IOMMU refused a device's access, or
    somebody broke the run off.
    """
    if blocked is None or any(event.name in _PROGRESS for event in events):
        return None
    direct = any(e.name == "nccl_transport" and str(e.fields.get("path")) == "P2P" for e in events)
    ended = any(_is_broken_off(event) for event in events)
    return blocked if direct and (ended or blocked.fields.get("by") == "iommu") else None


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


def _cured(events: Sequence[Event], timeouts: Sequence[Event], system: str | None) -> Event | None:
    """The sign of a stall in a first try, where a later try without peer copies got on."""
    off = next((event for event in events if _is_off(event)), None)
    if off is None:
        return None
    before = [event for event in events if event.order < off.order]
    after = any(event.name in _PROGRESS and event.order > off.order for event in events)
    stall = _stall(before, [event for event in timeouts if event.order < off.order], system) if after else None
    return stall if any(event.name in ("nccl_ready", "nccl_transport") for event in before) else None


def is_told_cure(event: Event) -> bool:
    """Whether a line says in words that it works without peer copies: a note on another run, no setting of this one."""
    if event.name != "nccl_setting" or event.fields.get("name") != "NCCL_P2P_DISABLE" or not _is_one(event):
        return False
    said = next((part for part in _SENTENCE.split(event.text or "") if "NCCL_P2P_DISABLE" in part), "")
    return _WORKS.search(said) is not None and _FAILS.search(said) is None


def _is_off(event: Event) -> bool:
    """Peer copies are switched off for what follows."""
    return event.name == "nccl_setting" and event.fields.get("name") == "NCCL_P2P_DISABLE" and _is_one(event)


def _is_one(event: Event) -> bool:
    return str(event.fields.get("value")).lower() in ("1", "true")


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
    if timeouts and all_at_the_first(events, timeouts, system):
        return timeouts[0]
    waits = [event for event in events if event.name == "shm_ring_wait"]
    least = _RING_WAITS_WITHOUT_PEERS if any(event.name == "p2p_disabled" for event in events) else _RING_WAITS
    if sum(event.repeat for event in waits) >= least:
        return waits[-1]
    bench = [e for e in events if e.name == "rank_busy" and e.fields.get("what") == "nccl-tests"]
    if bench:
        return bench[-1]
    held = ("all_reduce", "allreduce", "ncclAllReduce", "pynccl", "synchronize")
    stacks = [e for e in events if e.name == "stack_sample" and any(word in str(e.fields.get("top")) for word in held)]
    return stacks[-1] if stacks else None
