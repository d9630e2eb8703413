"""Names of packed and rotated logs: which log a part belongs to, and in which order the parts were written."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from infradoc_rules.lazy_pattern import lazy

_ROTATED = lazy(r"^(?P<base>.+?)\.(?P<n>\d{1,4})$")
_DATED = lazy(r"^(?P<base>.+?)[._-](?P<date>20\d\d-?\d\d-?\d\d(?:[T_-]?\d\d[:-]?\d\d(?:[:-]?\d\d)?)?)(?P<end>\.\w+)?$")
_TELLING = lazy(
    r"log|err|std|out(?:put)?\b|server|launch|start|run|cmd|command|trace|dmesg|syslog|messages|journal|nvidia|smi|nccl"
    r"|topo|metrics|prom|compose|docker|kube|pod|describe|vllm|sglang|tgi|ollama|llama|ray|trt|py-?spy|env|config"
    r"|\.(?:sh|ya?ml|service)$",
    re.IGNORECASE,
)
_PACK_ENDINGS = (".gz", ".xz", ".bz2", ".zst", ".tgz", ".zip", ".tar")


T = TypeVar("T")


def most_telling(files: Sequence[T], limit: int, name_of: Callable[[T], str]) -> tuple[list[T], int]:
    """At most `limit` of the files in their order, those whose names promise something first; how many are left."""
    if len(files) <= limit:
        return list(files), 0
    order = sorted(range(len(files)), key=lambda place: _TELLING.search(_own(name_of(files[place]))) is None)
    return [files[place] for place in sorted(order[:limit])], len(files) - limit


def _own(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]


def ending_of(name: str) -> str:
    return next((end for end in _PACK_ENDINGS if name.endswith(end)), "")


def group_of(name: str) -> str:
    """The log that a rotated part belongs to: server.log for server.log.1.gz and server.log-20251129."""
    while (ending := ending_of(name)) and ending not in (".tar", ".zip", ".tgz"):
        name = name[: -len(ending)]
    found = _ROTATED.match(name) or _DATED.match(name)
    return found["base"] + (found.groupdict().get("end") or "") if found else name


def order_key(name: str) -> tuple[str, int, int, str]:
    """Sorts the parts of a rotated log oldest first: dated ones, then server.log.2, server.log.1, server.log."""
    while (ending := ending_of(name)) and ending not in (".tar", ".zip", ".tgz"):
        name = name[: -len(ending)]
    dated = _DATED.match(name)
    if dated:
        return group_of(name), 0, 0, dated["date"]
    numbered = _ROTATED.match(name)
    if numbered:
        return group_of(name), 1, -int(numbered["n"]), name
    return group_of(name), 2, 0, name
