"""How much memory there is, how much a step takes, and a limit that the allocator itself enforces."""

from __future__ import annotations

import ctypes
import resource
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType

from infradoc_engine.host_reserve import set_aside

MIB = 1 << 20
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # malloc.h
_CGROUP = Path("/sys/fs/cgroup")
_CGROUPS = (  # limit, use, and the part of the use that is cached pages of files: version 2, then 1
    ("memory.max", "memory.current", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
)
_STATUS, _CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class NotEnoughMemory(MemoryError):
    """One sentence, an account in bytes by part, and the nearest settings that would fit (knob -> value)."""

    def __init__(
        self, message: str, account: Mapping[str, int] | None = None, fits: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.account, self.fits = message, dict(account or {}), dict(fits or {})


class PoolLost(NotEnoughMemory):
    """There is no KV pool any more and memory for none: no step can run. One sentence."""


def status_bytes(key: str) -> int | None:
    """A size from /proc/self/status ("VmData", "VmHWM", "VmRSS"), or None off Linux."""
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


def trim_heap() -> None:
    """Gives the C library's free memory back, so that the next reading counts what is used. Nothing off glibc."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        return


def return_what_is_freed() -> None:
    """Let the C library give memory back as it is freed, as far as it can: else a failed step leaves none for the next.

    A heap of another thread keeps its size for ever, so all threads share the main heap. That one only shrinks from its
    top, and by default takes blocks of up to 32 MiB: after a step of 2000 tokens that failed, 60 MiB and more of free
    pieces stayed in it, under the limit, where larger tensors found no room. Blocks of 2 MiB get maps of their own:
    prefill is 3 % slower for it, with 1 MiB 20 %.
    Nothing off glibc.
    """
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_ARENA_MAX, 1)
        libc.mallopt(_M_MMAP_THRESHOLD, 2 * MIB)
    except (OSError, AttributeError):
        return


def measure_peak(work: Callable[[], object]) -> int | None:
    """Bytes that resident memory rose at its highest while `work` ran; None where the kernel cannot say.

    Resets the process's high-water mark. Memory that `work` maps but never touches is not counted.
    """
    trim_heap()
    before = status_bytes("VmRSS")
    try:
        _CLEAR_REFS.write_text("5")
    except OSError:
        work()
        return None
    work()
    highest = status_bytes("VmHWM")
    return None if before is None or highest is None else max(highest - before, 0)


def _host_available() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    import psutil  # off Linux; late, so that the checks of infradoc_engine.gpu_check do without it

    return int(psutil.virtual_memory().available)


def available_bytes() -> int:
    """Memory that this process may still take: the host's, or less where a control group says so."""
    available = _host_available()
    for limit, used, cache in _CGROUPS:
        try:
            left = int((_CGROUP / limit).read_text()) - int((_CGROUP / used).read_text())
            # Pages of files that were read count as used, but make room when memory is asked for: a model just loaded
            # from its file would otherwise leave nothing.
            rows = dict(line.split() for line in (_CGROUP / used).with_name("memory.stat").read_text().splitlines())
            available = min(available, max(left + int(rows.get(cache, 0)), 0))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return available


class _HostRoom:
    """What host work may map at present beside a MemoryLimit; the limit is one for the whole process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rooms: list[int] = []
        self._limit: int | None = None  # as it stands without any room

    def set_limit(self, limit: int | None) -> None:
        """`limit` bytes of data for the process from now on; None: it is no longer ours to set."""
        with self._lock:
            self._limit = limit
            self._apply()

    @contextmanager
    def open(self, num_bytes: int) -> Iterator[None]:
        """See `host_room`."""
        with self._lock:
            self._rooms.append(num_bytes)
        try:  # applying may itself find no memory: then the room is closed again, not open for good
            with self._lock:
                self._apply()
            yield
        finally:
            with self._lock:
                self._rooms.remove(num_bytes)
                self._apply()

    def _apply(self) -> None:
        if self._limit is None:
            return
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        # More may be mapped already than the limit allows: by a step that ran beside an earlier room.
        used = (status_bytes("VmData") or 0) if self._rooms else 0
        wanted = max(self._limit, used) + sum(self._rooms)
        resource.setrlimit(
            resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )


_HOST_ROOM = _HostRoom()


def host_room(num_bytes: int) -> AbstractContextManager[None]:
    """While it lasts the process may map `num_bytes` more than a MemoryLimit allows; without a limit nothing happens.

    For work that is the host's and cannot bear a refusal: a tokenizer library ends the whole process at one. A step
    that runs meanwhile may take the room first, so this is for moments.
    """
    return _HOST_ROOM.open(num_bytes)


class MemoryLimit:
    """A real limit on this process's data (RLIMIT_DATA): its size now plus `num_bytes`.

    Above it the kernel refuses to map memory, so torch's own allocator raises, and it works again after a free. File
    maps that are only read do not count; thread stacks do; the front end's memory is set aside (see `host_reserve`).
    Linux only: `supported` is False elsewhere. A context manager for tests; the engine keeps it for life.
    """

    def __init__(self, num_bytes: int) -> None:
        return_what_is_freed()
        set_aside()
        trim_heap()
        self.num_bytes = num_bytes
        self.base_bytes = status_bytes("VmData")
        self.supported = self.base_bytes is not None
        self._old = resource.getrlimit(resource.RLIMIT_DATA)
        self.allow_beside(0)

    def allow_beside(self, host_bytes: int) -> None:
        """Let the process map `host_bytes` beside the budget, for what stands for host memory: the swap space."""
        if self.base_bytes is not None:
            _HOST_ROOM.set_limit(self.base_bytes + self.num_bytes + host_bytes)

    def used_bytes(self) -> int:
        """How much of the budget is mapped now."""
        now = status_bytes("VmData")
        return max(now - self.base_bytes, 0) if now is not None and self.base_bytes is not None else 0

    def lift(self) -> None:
        """Restores the limit that stood before."""
        _HOST_ROOM.set_limit(None)
        resource.setrlimit(resource.RLIMIT_DATA, self._old)

    def __enter__(self) -> MemoryLimit:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.lift()
