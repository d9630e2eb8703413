"""Whose process it is that holds device memory: the server's, another's, or one that cannot be told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infradoc.sources.host_rows import role_of

# Inode of the first PID namespace (PROC_PID_INIT_INO of the kernel): drivers count PIDs there.
_HOST_NAMESPACE = "pid:[4026531836]"
_LONGEST_NAME = 64
# Work for the server without being its children: Ray's workers, and the daemon that shares a device between processes.
_SHARED = ("ray::", "nvidia-cuda-mps")


def in_host_namespace(proc: Path = Path("/proc")) -> bool:
    """Whether PIDs here are those of the host; in a container of its own they are other numbers."""
    try:
        return str((proc / "self/ns/pid").readlink()) == _HOST_NAMESPACE
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Family:
    """Processes of the server on this host. `engine`: one of them is known to be an engine by its name.

    Without that the listener may be a port proxy of a container, a tunnel or a load balancer, and the server elsewhere.
    """

    pids: frozenset[int] = frozenset()
    engine: bool = False

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> Family:
        """From the `procs` of a host row."""
        pids = frozenset(row["pid"] for row in rows)
        return cls(pids, any(role_of(str(row.get("role", ""))) != "other" for row in rows))


def process_rows(
    held: Sequence[tuple[int, int | None]], family: Family, host_pids: bool, proc: Path = Path("/proc")
) -> list[dict[str, Any]]:
    """A row per process on one device.

    held: (PID, bytes or None) as the driver tells. host_pids: whether PIDs here are the driver's. A process is called
    another's only when it is sure that the server would have been recognised: it is an engine whose PIDs are the
    driver's numbers, or one of its PIDs is on the device.
    """
    matched = any(pid in family.pids for pid, _ in held)
    certain = matched or (family.engine and host_pids)
    rows = []
    for pid, size in held:
        name = _name(pid, proc)
        foreign = certain and name and not name.startswith(_SHARED)
        owner = "server" if pid in family.pids else "other" if foreign else "unknown"
        row: dict[str, Any] = {"pid": pid, "owner": owner}
        if size is not None:
            row["bytes"] = size
        if name and owner != "unknown":  # the name of a number from another namespace would be someone else's
            row["name"] = name
        rows.append(row)
    return rows


def _name(pid: int, proc: Path) -> str:
    try:
        return (proc / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()[:_LONGEST_NAME]
    except OSError:
        return ""
