"""Who holds a device's memory beside the server itself: from the refused allocation, the start-up check, a snapshot."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact, Value
from infradoc_rules.patterns.sizes import number_of
from infradoc_rules.summaries.start import first_served
from infradoc_rules.values import number

_PROCESS = lazy(r"Process (\d+) has ([\d.]+ (?:[KMGT]i?B|bytes)) memory in use")
_LOG_PID = lazy(r"\bpid=(\d{1,9})")
_GAP = 0.10  # of the device: what free, own and the driver leave open; below it says nothing on others
_OWN_AT_LEAST = 0.97  # of what torch says it holds: the process itself never shows less


@dataclass(frozen=True, slots=True)
class Held:
    """`count` bytes of others on a device of `total`, None where nothing was said; `named`: processes were listed."""

    count: float | None = None
    total: float | None = None
    source: str | None = None
    named: bool = False

    @property
    def share(self) -> float | None:
        """Of the device."""
        return self.count / self.total if self.count is not None and self.total else None


def other_bytes(events: Sequence[Event], run: Sequence[Event], facts: Mapping[str, Fact]) -> Held:
    """The most telling sign of others in the attempt `run`; snapshots are looked for in all `events`."""
    total = _total(run, facts)
    signs = [*_of_refusals(run), *_of_start(run)]
    # A refused allocation accounts for the device at the very moment; a snapshot is from some time before or after.
    # While the server serves, the largest process of a snapshot is the server.
    if first_served(run) is None and not any(sign.count is not None and sign.total for sign in signs):
        signs += _of_snapshot(events, run, facts, total)
    known = [sign for sign in signs if sign.count is not None]
    return max(known, key=lambda sign: sign.share or 0.0, default=Held())


def _total(run: Sequence[Event], facts: Mapping[str, Fact]) -> float | None:
    sizes: list[Value | None] = [event.fields.get("total_bytes") for event in run]
    if "gpu.memory_bytes" in facts:
        sizes.append(facts["gpu.memory_bytes"].value)
    return next((float(size) for size in sizes if isinstance(size, int | float) and size > 0), None)


def _of_refusals(run: Sequence[Event]) -> Iterator[Held]:
    for event in run:
        if event.name == "cuda_oom" and (held := held_by_others(event)) is not None:
            total = _number(event, "total_bytes")
            yield Held(held, total, event.source, bool(_PROCESS.search(str(event.fields.get("holders", "")))))


def held_by_others(event: Event) -> float | None:
    """Bytes of other processes in a refused allocation; None where it does not say.

    torch prints "this process" only where it finds itself among NVML's processes. In a container it often does not,
    and then its own memory stands under "Process N": the one that holds what the allocator says it holds.
    """
    listed = [number_of(size) for _, size in _PROCESS.findall(str(event.fields.get("holders", "")))]
    total, free, own = (_number(event, name) for name in ("total_bytes", "free_bytes", "process_bytes"))
    if own is not None and (total is None or own <= total):
        if listed:
            return float(sum(listed))
        return _gap(total, free, own)
    allocator = (_number(event, "allocated_bytes") or 0.0) + (_number(event, "reserved_unallocated_bytes") or 0.0)
    if listed:
        itself = min((size for size in listed if size >= _OWN_AT_LEAST * allocator), default=0.0)
        return float(sum(listed) - itself)
    if _number(event, "reserved_unallocated_bytes") is None and _number(event, "reserved_bytes") is None:
        return None  # what the allocator caches beside it is not told, and may be the whole gap
    return _gap(total, free, max(allocator, _number(event, "reserved_bytes") or 0.0) or None)


def _gap(total: float | None, free: float | None, own: float | None) -> float | None:
    """What is neither free nor the process's own: others, once it is more than contexts and the driver take."""
    if total is None or free is None or own is None:
        return None
    left = total - free - own
    return left if left > _GAP * total else 0.0


def _of_start(run: Sequence[Event]) -> Iterator[Held]:
    """What was taken before the engine took anything: V1 prints free and total memory at its start."""
    for event in run:
        if event.name in ("memory_below_request", "memory_account"):
            total, free = _number(event, "total_bytes"), _number(event, "free_bytes")
            if total is not None and free is not None:
                yield Held(max(total - free, 0.0), total, event.source)


def _of_snapshot(
    events: Sequence[Event], run: Sequence[Event], facts: Mapping[str, Fact], total: float | None
) -> Iterator[Held]:
    """What a snapshot beside a start that failed shows on the server's devices: none of it is the server's own.

    Processes that the log names as its own are left out. In a container no process is listed, only what is in use.
    """
    own = {int(pid) for event in run for pid in _LOG_PID.findall(event.text or "")}
    held: dict[tuple[Value | None, Value | None], float] = {}  # by device and process: a series lists one many times
    listed: dict[Value | None, float] = {}
    places: dict[Value | None, str | None] = {}
    own_seen = False
    for event in events:
        size = _number(event, "bytes")
        if event.name != "gpu_process" or not size or event.fields.get("owner") == "server":
            continue
        if event.fields.get("pid") in own:
            own_seen = True
            continue
        device, pid = event.fields.get("gpu"), event.fields.get("pid")
        before = held.get((device, pid), 0.0) if pid is not None and event.time is not None else 0.0
        held[device, pid] = size
        listed[device] = listed.get(device, 0.0) + size - before
        places[device] = event.source
    for event in events:
        if event.name == "gpu_state" and not own_seen:
            device, used = event.fields.get("gpu"), _number(event, "used_bytes") or 0.0
            if used > listed.get(device, 0.0):
                listed[device], places[device] = used, event.source
    mine = _devices(facts)
    chosen = [device for device in listed if mine is None or device in mine] or list(listed)
    for device in chosen:
        yield Held(listed[device], total, places[device], True)


def _devices(facts: Mapping[str, Fact]) -> set[int] | None:
    """Indices of the devices that the server uses: those it was given, else the first ones; None when unclear."""
    for name in ("CUDA_VISIBLE_DEVICES", "env.CUDA_VISIBLE_DEVICES", "container_devices"):
        if name in facts:
            text = str(facts[name].value)
            given = re.findall(r"\d+", text) if name != "container_devices" or "device=" in text else []
            return {int(index) for index in given} or None
    sizes = [facts[name].value for name in ("tensor_parallel_size", "pipeline_parallel_size") if name in facts]
    count = 1
    for size in sizes:
        count *= size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else 1
    return set(range(count))


def _number(event: Event, name: str) -> float | None:
    return number(event.fields.get(name))
