"""Memory of the host and of /dev/shm: whether a process was ended for it, by whom, and what there was.

Facts: host.oom, host.oom_by, host.oom_phase, host.used_share, host.size_bytes, host.want_bytes, host.free_bytes,
host.what; shm.short, shm.total_bytes, shm.used_share, shm.want_bytes. Device memory: `memory`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact
from infradoc_rules.patterns.sizes import number_of
from infradoc_rules.summaries.bystanders import unexplained

_KILL_CODES = frozenset({-9, 137})
# Names of processes that a server or a training run consists of; a browser that the kernel ended is none.
_SERVER = lazy(
    r"(?i)python|pt_|vllm|sglang|llama|ollama|tgi|text-gen|triton|trtllm|lmdeploy|ray|worker|engine|torch|mpirun|api|"
    r"server|runner|process|deepspeed|accelerate|shard"
)
_SMALL_SHM = 128 << 20  # bytes: docker's and Kubernetes' default is 64 MiB; vLLM's ring alone is lazily 240 MiB
_LARGE_SHM = 8 << 30
_FULL = 0.95
_NO_SPACE = lazy(r"Errno 28\]|No space left on device")
_SHM_CALLERS = ("shm", "shared_memory", "share_memory", "_share_filename", "SharedMemory", "MessageQueue", "SemLock")
_SHM_FILES = ("synchronize.py", "reductions.py", "shared_memory.py")
# Functions that pin memory of the host; CUDA reports a lack of it as if it were the device's.
_PINNING = lazy(r"\b(?:allocate_cpu_cache|pin_memory|pin_mmap_region|_Create_memory_allocator|alloc_pinned\w*)\b")
_PIN_ERROR = lazy(r"CUDA error: (?:out of memory|invalid argument)|cudaErrorMemoryAllocation|cudaHost")


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """The facts above; the verdicts are always stated: "certain", "likely" or "none"."""
    if not events:
        return
    shm = list(_shm(events, facts))
    yield from shm
    yield from _host(events, facts, shm[0].value != "none")


def _host(events: Sequence[Event], facts: Mapping[str, Fact], shm: bool) -> Iterator[Fact]:
    sign, by = _sign(events, facts, shm)
    verdict = "none" if sign is None and by is None else "likely" if by == "signal" else "certain"
    place = sign.source if sign else None
    yield Fact("host.oom", verdict, "derived", place)
    if by is not None:
        yield Fact("host.oom_by", by, "derived", place)
    if sign is not None and sign.phase:
        yield Fact("host.oom_phase", sign.phase, "derived", place)
    if by == "pinned" and sign is not None:
        swap = "allocate_cpu_cache" in str(sign.fields.get("functions", ""))
        yield Fact("host.what", "swap_space" if swap else "pinned", "derived", place)
    refused = next((event for event in events if event.name == "host_alloc_failed"), None)
    if refused is not None:
        for field in ("want_bytes", "free_bytes", "what"):
            if field in refused.fields:
                yield Fact(f"host.{field}", refused.fields[field], "derived", refused.source)
    yield from _size(events, facts)


def _sign(events: Sequence[Event], facts: Mapping[str, Fact], shm: bool) -> tuple[Event | None, str | None]:
    """The first event that shows it, and who or what ended the process."""
    kills = [event for event in events if event.name == "host_oom_kill" and _is_ours(event)]
    if kills:
        # What Kubernetes calls the cause says less than the kernel's or Ray's own line.
        first = next((event for event in kills if event.fields.get("scope") != "container"), kills[0])
        return first, str(first.fields.get("scope", "host"))
    refused = next((event for event in events if event.name == "host_alloc_failed"), None)
    if refused is not None:
        return refused, "allocation"
    pinned = next((event for event in events if _not_pinned(event)), None)
    if pinned is not None:
        return pinned, "pinned"
    counted = facts.get("cgroup.oom_kills")
    if counted is not None and isinstance(counted.value, int | float) and counted.value > 0:
        return None, "cgroup"
    # What an orchestrator restarts for its probe ends by signal 9 as well.
    if shm or any(event.name == "probe_failed" for event in events):
        return None, None
    killed = next((event for event in events if _by_signal(event) and unexplained(event, events)), None)
    return killed, "signal" if killed is not None else None


def _not_pinned(event: Event) -> bool:
    if event.name != "traceback" or not _PINNING.search(str(event.fields.get("functions", ""))):
        return False
    return bool(_PIN_ERROR.search(str(event.fields.get("message", ""))))


def _is_ours(event: Event) -> bool:
    name = event.fields.get("name")
    return not isinstance(name, str) or bool(_SERVER.search(name))


def _by_signal(event: Event) -> bool:
    if event.name != "worker_died" or event.phase == "shutdown":
        return False
    # Ray's SYSTEM_ERROR stands for a connection that ended: signal 9 or 11, and 11 is printed by who gets it.
    # A worker of a data set's map that ends without an exception was killed: exceptions are handed to the caller.
    lost = event.fields.get("name") in ("SYSTEM_ERROR", "map worker")
    return lost or event.fields.get("signal") == 9 or event.fields.get("exit_code") in _KILL_CODES


def _size(events: Sequence[Event], facts: Mapping[str, Fact]) -> Iterator[Fact]:
    """host.size_bytes: the container's limit where there is one, else the host's memory; host.used_share of it."""
    size: float | None = None
    used: float | None = None
    place: str | None = None
    for event in events:
        if event.name not in ("host_memory", "host_alloc_failed", "process_usage"):
            continue
        limit = event.fields.get("limit_bytes", event.fields.get("total_bytes"))
        taken = event.fields.get("used_bytes", event.fields.get("bytes"))
        size, place = (limit, event.source) if isinstance(limit, int) and limit > 0 else (size, place)
        used = taken if isinstance(taken, int) and isinstance(limit, int) else used
    for name in ("cgroup.memory_limit_bytes", "host.memory_bytes"):
        size = size if size is not None else _number(facts, name)
    if not size:
        return
    yield Fact("host.size_bytes", int(size), "derived", place)
    if used is None:
        peak = _number(facts, "cgroup.memory_peak_bytes")
        used = peak if peak is not None else _number(facts, "cgroup.memory_bytes")
    if used is not None:
        yield Fact("host.used_share", used / size, "derived", place)


def _shm(events: Sequence[Event], facts: Mapping[str, Fact]) -> Iterator[Fact]:
    """The verdict first. A bus error with a large /dev/shm comes from elsewhere: a mapped file that was cut or lost."""
    total, share = _shm_size(facts)
    shorts = [event for event in events if event.name == "shm_short"]
    spoken = next((event for event in shorts if event.fields.get("what") not in ("SIGBUS", "bus error")), None)
    spoken = spoken or next((event for event in events if _no_space(event)), None)
    by_signal = next(iter(shorts), None)
    roomy = total is not None and total >= _LARGE_SHM and (share is None or share < _FULL)
    sign = spoken or (None if roomy else by_signal)
    verdict = "certain" if sign is not None else "none"
    if sign is None:
        sign = _silent_death(events, facts, total, share)
        verdict = "likely" if sign is not None else "none"
    yield Fact("shm.short", verdict, "derived", sign.source if sign else None)
    if total is not None:
        yield Fact("shm.total_bytes", int(total), "derived")
    if share is not None:
        yield Fact("shm.used_share", share, "derived")
    wanted = [size for event in shorts if isinstance(size := event.fields.get("want_bytes"), int)]
    if wanted:
        yield Fact("shm.want_bytes", max(wanted), "derived", shorts[0].source)


def _silent_death(
    events: Sequence[Event], facts: Mapping[str, Fact], total: float | None, share: float | None
) -> Event | None:
    """A worker that ended without a word while /dev/shm is full, or is of the default size and several share it."""
    full = share is not None and share >= _FULL
    ranks = _number(facts, "tensor_parallel_size") or 1
    small = total is not None and total <= _SMALL_SHM and ranks > 1
    if not (full or small):
        return None
    return next((event for event in events if _silent(event) and unexplained(event, events)), None)


def _silent(event: Event) -> bool:
    return event.name == "worker_died" and not _by_signal(event) and event.phase != "shutdown"


def _no_space(event: Event) -> bool:
    if event.name != "traceback" or not _NO_SPACE.search(str(event.fields.get("message", ""))):
        return False
    near = f"{event.fields.get('functions', '')} {event.fields.get('file', '')} {event.fields.get('message', '')}"
    return any(word in near for word in (*_SHM_CALLERS, *_SHM_FILES))


def _shm_size(facts: Mapping[str, Fact]) -> tuple[float | None, float | None]:
    """Size of /dev/shm and the used share: measured, else as the container was started."""
    total = _number(facts, "shm.size_bytes")
    used = _number(facts, "shm.used_bytes")
    if total is None:
        total = _number(facts, "shm_size")
    return total, used / total if used is not None and total else None


def _number(facts: Mapping[str, Fact], name: str) -> float | None:
    """A fact as a number; "4g" and "64Mi" of a container's options as bytes."""
    fact = facts.get(name)
    if fact is None or isinstance(fact.value, bool):
        return None
    if isinstance(fact.value, int | float):
        return float(fact.value)
    try:
        return number_of(str(fact.value).upper().removesuffix("B").replace("I", "i")) if fact.value else None
    except ValueError:
        return None
