"""How much memory there is, how much a step takes, and a limit that the allocator itself enforces."""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil
import torch

MIB = 1 << 20
_STATUS, _CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class NotEnoughMemory(MemoryError):
    """One sentence, an account in bytes by part, and the nearest settings that would fit (knob -> value)."""

    def __init__(
        self, message: str, account: Mapping[str, int] | None = None, fits: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.account, self.fits = message, dict(account or {}), dict(fits or {})


# What torch's allocators and C++ say; and oneDNN, which reports a refused buffer for its generated code this way.
_REFUSALS = ("can't allocate memory", "not enough memory", "out of memory", "bad_alloc")
_ONEDNN_REFUSALS = ("could not create a primitive", "could not create a memory", "could not execute a primitive")


def is_out_of_memory(error: BaseException) -> bool:
    """True for the ways in which torch, oneDNN and numpy say that an allocation was refused."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(sign in text for sign in _REFUSALS + _ONEDNN_REFUSALS)


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


def available_bytes() -> int:
    """Memory that this process may still take: the host's, or less where a control group says so."""
    available = int(psutil.virtual_memory().available)
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            available = min(available, max(int(Path(limit).read_text()) - int(Path(used).read_text()), 0))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return available


class MemoryLimit:
    """A real limit on this process's data (RLIMIT_DATA): its size now plus `num_bytes`.

    Above it the kernel refuses to map memory, so torch's own allocator raises, and it works again after a free. File
    maps that are only read do not count; thread stacks do. Linux only: `supported` is False elsewhere. A context
    manager for tests; the engine keeps it for life.
    """

    def __init__(self, num_bytes: int) -> None:
        trim_heap()
        self.num_bytes = num_bytes
        self.base_bytes = status_bytes("VmData")
        self.supported = self.base_bytes is not None
        self._old = resource.getrlimit(resource.RLIMIT_DATA)
        if self.base_bytes is not None:
            wanted, hard = self.base_bytes + num_bytes, self._old[1]
            if hard != resource.RLIM_INFINITY:
                wanted = min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))

    def used_bytes(self) -> int:
        """How much of the budget is mapped now."""
        now = status_bytes("VmData")
        return max(now - self.base_bytes, 0) if now is not None and self.base_bytes is not None else 0

    def lift(self) -> None:
        """Restores the limit that stood before."""
        resource.setrlimit(resource.RLIMIT_DATA, self._old)

    def __enter__(self) -> MemoryLimit:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.lift()


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """What the pool is sized from; sizes in bytes or tokens as named."""

    device_bytes: int
    utilization: float
    weight_bytes: int
    activation_bytes: int
    other_bytes: int
    bytes_per_token: int
    block_size: int
    max_model_len: int
    max_num_seqs: int
    pool_tokens: int | None  # asked for; None: as much as helps

    @property
    def budget_bytes(self) -> int:
        return int(self.device_bytes * self.utilization)

    @property
    def free_bytes(self) -> int:
        return self.budget_bytes - self.weight_bytes - self.activation_bytes - self.other_bytes

    def account(self) -> dict[str, int]:
        return {
            "weights": self.weight_bytes,
            "kv": max(self.free_bytes, 0),
            "activations": self.activation_bytes,
            "graphs": 0,
            "other": self.other_bytes,
        }


def size_pool(ask: PoolRequest) -> int:
    """Number of KV blocks. Raises NotEnoughMemory with the settings that would fit."""
    block_bytes = ask.bytes_per_token * ask.block_size
    fitting = max(ask.free_bytes, 0) // block_bytes
    needed = -(-ask.max_model_len // ask.block_size)
    if ask.pool_tokens is not None:
        blocks = ask.pool_tokens // ask.block_size
        if blocks < needed:
            raise _pool_too_small(ask, blocks, needed)
        if blocks > fitting:
            raise _no_room(ask, blocks, fitting)
        return blocks
    if fitting < needed:
        raise _no_room(ask, needed, fitting)
    return min(fitting, needed * ask.max_num_seqs)


def _pool_too_small(ask: PoolRequest, blocks: int, needed: int) -> NotEnoughMemory:
    fits = {"kv_pool_tokens": needed * ask.block_size}
    if blocks:
        fits["max_model_len"] = blocks * ask.block_size
    return NotEnoughMemory(
        f"A KV pool of {ask.pool_tokens} tokens ({blocks} blocks of {ask.block_size}) cannot hold one request of "
        f"max_model_len {ask.max_model_len} tokens; {_settings(fits)}.",
        ask.account(),
        fits,
    )


def _no_room(ask: PoolRequest, blocks: int, fitting: int) -> NotEnoughMemory:
    block_bytes = ask.bytes_per_token * ask.block_size
    needed_bytes = ask.budget_bytes - ask.free_bytes + blocks * block_bytes
    fits = {"device_memory_bytes": int(needed_bytes / ask.utilization) + 1}
    if ask.pool_tokens is not None:
        if fitting * ask.block_size >= ask.max_model_len:
            fits["kv_pool_tokens"] = fitting * ask.block_size
    elif fitting:
        fits["max_model_len"] = fitting * ask.block_size
    return NotEnoughMemory(
        f"No memory for a KV pool of {blocks * ask.block_size} tokens ({_mib(blocks * block_bytes)} MiB): of "
        f"{_mib(ask.device_bytes)} MiB times {ask.utilization:g} the weights take {_mib(ask.weight_bytes)}, a step "
        f"{_mib(ask.activation_bytes)} and the rest of the process {_mib(ask.other_bytes)} MiB, which leaves "
        f"{_mib(max(ask.free_bytes, 0))}; {_settings(fits)}.",
        ask.account(),
        fits,
    )


def _mib(num_bytes: int) -> int:
    return -(-num_bytes // MIB)


def _settings(fits: Mapping[str, int]) -> str:
    """Names settings that fit, as the engine's flags."""
    options = [f"--{knob.replace('_', '-')} {value}" for knob, value in fits.items()]
    return "this fits: " + " or ".join(options)
