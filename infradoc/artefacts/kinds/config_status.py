"""How containers ended, as `kubectl get pod -o yaml|json` and `docker inspect` say it: events of the usual names.

An OOM kill is `host_oom_kill` (scope container; scope host where the node was short and evicted the pod), signal 9
without that word is `worker_died`, signal 7 is `shm_short`, signal 11 is `worker_died`. Fact container.restarts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from infradoc.artefacts.model import Segment
from infradoc.sources.launch_inspect import inspected
from infradoc.sources.launch_manifest import at
from infradoc_rules.model import Event, Fact, Value

_BY_CODE: Mapping[int, tuple[str, dict[str, Value]]] = {
    137: ("worker_died", {"name": "process", "exit_code": 137}),
    -9: ("worker_died", {"name": "process", "exit_code": -9}),
    139: ("worker_died", {"name": "process", "signal": 11}),
    135: ("shm_short", {"what": "SIGBUS"}),
}
_DEEPEST = 6


def ended(document: Any, segment: Segment) -> tuple[list[Event], list[Fact]]:
    """Events of all ends in a document, and how often its containers were started again."""
    events: list[Event] = []
    restarts: list[int] = []
    for row in inspected(document):
        events += _end(at(row, "State", "OOMKilled") is True, at(row, "State", "ExitCode"), segment)
        restarts.append(_count(row.get("RestartCount")))
    for status in _statuses(document, 0):
        if status.get("reason") == "Evicted" and "memory" in str(status.get("message", "")):
            events.append(_event("host_oom_kill", {"scope": "host"}, "Evicted", segment))
        for container in _containers(status):
            restarts.append(_count(container.get("restartCount")))
            for key in ("lastState", "state"):
                over = at(container, key, "terminated")
                if isinstance(over, dict):
                    events += _end(over.get("reason") == "OOMKilled", over.get("exitCode"), segment)
    place = segment.place(0)
    return events, [Fact("container.restarts", max(restarts), "file", place)] if any(restarts) else []


def _end(oom: bool, code: Any, segment: Segment) -> Iterator[Event]:
    if oom:
        yield _event("host_oom_kill", {"scope": "container"}, "OOMKilled", segment)
    elif isinstance(code, int) and code in _BY_CODE:
        name, fields = _BY_CODE[code]
        yield _event(name, fields, str(code), segment)


def _event(name: str, fields: Mapping[str, Value], word: str, segment: Segment) -> Event:
    """An event placed at the first line that holds the word for it."""
    index = next((index for index, line in enumerate(segment.lines) if word in line), 0)
    return Event(name, 0, dict(fields), None, None, segment.place(index), segment.lines[index].strip()[:400])


def _statuses(node: Any, depth: int) -> Iterator[dict[str, Any]]:
    """The `status` of a pod, or of each pod of a List."""
    if depth > _DEEPEST or not isinstance(node, dict):
        return
    if isinstance(node.get("status"), dict):
        yield node["status"]
    for item in node.get("items") or []:
        yield from _statuses(item, depth + 1)


def _containers(status: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for key in ("containerStatuses", "initContainerStatuses"):
        rows = status.get(key)
        yield from (row for row in rows if isinstance(row, dict)) if isinstance(rows, list) else ()


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0
