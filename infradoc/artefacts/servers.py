"""Which logs of a folder are of which server, where there are several.

Two logs are of different servers when each holds a server's banner and
  - they were written at the same time (one server starts again only after it ended), or
  - they name different ports, or came under different names of pods, services or files in one paste.
Else a later log is a later attempt of the same server: a good start after failed ones is then what counts. Nodes of one
server, ranks of a training and copies of one log are never parted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from infradoc.artefacts.model import Artefact
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event

_LOOKED = 4_000  # lines that say who is writing
_OVERLAP = 2.0  # seconds that two logs share when they were written at the same time
_SAME = 0.5  # of the events of one log are in the other when both are copies
MOST_SERVERS = 16
_BANNER = lazy(
    r"API server version|server_args=|Initializing an? (?:V[01] )?LLM engine|text_generation_launcher: Args"
    r"|llama_model_loader: loaded|server is listening on|Uvicorn running on|TensorRT-LLM version|Started server process"
)
_PORTS = (
    lazy(r"(?:[Rr]unning|listening|server(?: \d+)?) on \S{0,80}?:(?P<port>\d{2,5})\b"),
    lazy(r"(?<![\w.-])(?:--)?['\"]?port['\"]?(?:[=:] ?|\s)['\"]?(?P<port>\d{2,5})\b"),
)
# One server or training over several nodes: each writes a log of its own.
_NODES = lazy(r"(?:nnodes|node_rank|data_parallel_address)['\"]?[= :]{1,3}(?!None|1\b|0\b)\S|--headless\b")
_VLLM_SET, _VLLM_PORT = "non-default args: {", "8000"
_COMMANDS = frozenset({"launch", "launch_code", "launch_units", "config", "tgi_args"})
_TOKEN = re.compile(r"[^\W_]+")
_GENERIC = frozenset(
    {
        "log",
        "logs",
        "txt",
        "sh",
        "out",
        "err",
        "server",
        "launch",
        "run",
        "start",
        "serve",
        "cmd",
        "yaml",
        "yml",
        "json",
    }
    | {"vllm", "sglang", "tgi", "llama"}
)


@dataclass(frozen=True, slots=True)
class Signs:
    """What the lines of a text say of who wrote them. `name` is what a collector put in front of each."""

    banner: bool = False
    ports: frozenset[str] = frozenset()
    nodes: bool = False
    name: str = ""


@dataclass(slots=True)
class Part:
    """One segment that was read; `group` is the log that its file is a part of."""

    source: str
    kind: str
    artefact: Artefact
    group: str = ""
    signs: Signs = field(default_factory=Signs)


def signs_of(lines: Iterable[str], name: str = "") -> Signs:
    """The signs in the first lines of a text."""
    banner = nodes = usual = False
    ports: set[str] = set()
    for line in list(lines)[:_LOOKED]:
        banner = banner or _BANNER.search(line) is not None
        usual = usual or _VLLM_SET in line  # vLLM tells what differs from its defaults: without a port there it is 8000
        if "port" in line or "://" in line or " on " in line:
            ports.update(found["port"] for pattern in _PORTS if (found := pattern.search(line)) is not None)
        if not nodes and ("node" in line or "--headless" in line or "data_par" in line):
            nodes = _NODES.search(line) is not None
    return Signs(banner, frozenset(ports or ({_VLLM_PORT} if usual else ())), nodes, name)


def has_banner(lines: Iterable[str]) -> bool:
    """Whether a server's first words are among these lines."""
    return any(_BANNER.search(line) is not None for line in list(lines)[:_LOOKED])


def by_server(parts: Sequence[Part]) -> list[list[Part]]:
    """The parts of each server, those that belong to none in particular with all; none when there is but one server."""
    logs = [part for part in parts if part.kind == "log" and part.signs.banner and _serves(part.artefact.events)]
    if len(logs) < 2 or any(part.signs.nodes for part in parts):
        return []
    servers: list[list[Part]] = []
    for log in logs:
        mine = next((held for held in servers if not any(_apart(log, other) for other in held)), None)
        if mine is None:
            servers.append([log])
        else:
            mine.append(log)
    if not 2 <= len(servers) <= MOST_SERVERS:
        return []
    owners = [_owner(part, place, parts, servers) for place, part in enumerate(parts)]
    return [
        [part for part, owner in zip(parts, owners, strict=True) if owner is None or owner == place]
        for place in range(len(servers))
    ]


def _serves(events: Sequence[Event]) -> bool:
    return not any(event.name == "train_step" for event in events)


def _apart(one: Part, other: Part) -> bool:
    """Whether two logs are surely of different servers."""
    if one.group == other.group or _copied(one.artefact.events, other.artefact.events):
        return False
    if one.signs.name and other.signs.name and one.signs.name != other.signs.name:
        return True
    if one.signs.ports and other.signs.ports and not one.signs.ports & other.signs.ports:
        return True
    return _overlap(one.artefact.events, other.artefact.events) > _OVERLAP


def _copied(one: Sequence[Event], other: Sequence[Event]) -> bool:
    fewer, more = sorted((one, other), key=len)
    seen = {(event.text, event.time) for event in more}
    return sum(1 for event in fewer if (event.text, event.time) in seen) > _SAME * len(fewer)


def _overlap(one: Sequence[Event], other: Sequence[Event]) -> float:
    """Seconds in which both logs were written; below 0 where one follows the other or the times are not known."""
    spans = [[event.time for event in events if event.time is not None] for events in (one, other)]
    if not all(spans):
        return -1.0
    return min(map(max, spans)) - max(map(min, spans))


def _owner(part: Part, place: int, parts: Sequence[Part], servers: Sequence[Sequence[Part]]) -> int | None:
    """The server that a part belongs to; None where nothing says that it is of one alone."""
    for index, server in enumerate(servers):
        if any(part is log or (part.group == log.group and part.kind != "launch") for log in server):
            return index
    if part.kind in _COMMANDS and part.signs.ports:
        found = [i for i, server in enumerate(servers) if any(part.signs.ports & log.signs.ports for log in server)]
        if len(found) == 1:
            return found[0]
    named = [i for i, server in enumerate(servers) if any(_alike(part.source, log.source, parts) for log in server)]
    if len(named) == 1:
        return named[0]
    if part.kind in _COMMANDS:
        commands = [one for one in parts if one.kind == part.kind]
        if len(commands) == len(servers):
            return next(i for i, one in enumerate(commands) if one is part)
    return None


def _alike(one: str, other: str, parts: Sequence[Part]) -> bool:
    """Whether two files share a word in their names or folders that tells some of the files from the rest."""
    seen = Counter(token for source in {part.source for part in parts} for token in _tokens(source))
    several = len({part.source for part in parts})
    return any(seen[token] < several for token in _tokens(one) & _tokens(other))


def _tokens(source: str) -> set[str]:
    return {token for token in _TOKEN.findall(source.lower()) if token not in _GENERIC}
