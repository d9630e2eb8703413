"""`kubectl describe pod`: what the containers were started with, and what their states and the events below say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infradoc.artefacts.log_reader import LogReader
from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span
from infradoc.sources.launch_container import option_facts
from infradoc.sources.launch_manifest import container_facts
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Fact
from infradoc_rules.patterns import LogScanner

_BEGINS = lazy(r"^Name: {2,}\S+$")
_TOP = lazy(r"^(?!INFO|WARN|ERROR|DEBUG|CRITICAL|FATAL)[A-Z][\w -]{1,40}:(?: |$)")
_CONTAINERS = lazy(r"^(?:Init )?Containers:$")
_KEY = lazy(r"^(?P<indent> +)(?P<key>[^:]{1,80}):(?: +(?P<value>.*))?$")
_SHM = lazy(r"^ +/dev/shm from (\S+) ")
_RESTARTS = lazy(r"^ +Restart Count: +(\d+)$")
_MOST = 400  # lines of one pod
_MOST_HEAD = 60  # lines above its containers


class DescribeKind:
    """One pod a span, from its name on."""

    name = "describe"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """From `Name:` to the first line at the left that is no heading of the same output."""
        found: list[Span] = []
        for start, line in enumerate(lines):
            if _BEGINS.match(line) and (not found or start >= found[-1][1]):
                end = _end(lines, start)
                if any(_CONTAINERS.match(head) for head in lines[start : min(end, start + _MOST_HEAD)]):
                    found.append((start, end))
        return found

    def read(self, segment: Segment) -> Artefact:
        """Events of its lines as a log has them; facts of the containers that run a server we know."""
        scanner = LogScanner(None, segment.source)
        scanner.lines = segment.first_line - 1
        reader = LogReader(scanner)
        reader.feed(segment.lines)
        read = reader.artefact()
        out = Artefact(read.events, [fact for fact in read.facts if fact.name != "target.system"])
        for container in _containers(segment.lines):
            system, facts = container_facts(container, segment.source)
            if system is not None:
                out.system = out.system or system
                out.facts += [Fact("target.system", system, "flag", segment.source), *facts]
        out.facts += _shm_facts(segment.lines, segment.source)
        restarts = [int(found[1]) for line in segment.lines if (found := _RESTARTS.match(line))]
        if any(restarts):
            out.facts.append(Fact("container.restarts", max(restarts), "file", segment.source))
        return out


def _end(lines: Sequence[str], start: int) -> int:
    end = start + 1
    while end < min(len(lines), start + _MOST):
        line = lines[end]
        if (line.strip() and line[0] not in " \t" and not _TOP.match(line)) or _BEGINS.match(line):
            break
        end += 1
    while not lines[end - 1].strip():
        end -= 1
    return end


def _containers(lines: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Each container as its manifest would have it: image, command, args, env, resources.limits."""
    container: dict[str, Any] | None = None
    inside = False
    section = ""
    for line in lines:
        if line and line[0] != " ":
            if container is not None:
                yield container
            inside, container = _CONTAINERS.match(line) is not None, None
        elif inside:
            indent = len(line) - len(line.lstrip())
            if indent == 2:
                if container is not None:
                    yield container
                container, section = {"env": [], "command": [], "args": [], "resources": {"limits": {}}}, ""
            elif container is not None and indent == 4:
                found = _KEY.match(line)
                section = found["key"] if found else ""
                if found and found["key"] == "Image":
                    container["image"] = found["value"] or ""
            elif container is not None:
                _take(container, section, line)
    if container is not None:
        yield container


def _take(container: dict[str, Any], section: str, line: str) -> None:
    """A line below a heading of a container. Values that come from secrets are shown in angle brackets."""
    if section in ("Command", "Args"):
        container[section.lower()].append(line.strip())
        return
    found = _KEY.match(line)
    value = (found["value"] or "").strip() if found else ""
    if found and section == "Limits":
        container["resources"]["limits"][found["key"]] = value
    elif found and section == "Environment" and not value.startswith("<"):
        container["env"].append({"name": found["key"], "value": value})


def _shm_facts(lines: Sequence[str], source: str) -> Iterator[Fact]:
    """shm_size of the memory-backed volume that is mounted at /dev/shm."""
    names = {found[1] for line in lines if (found := _SHM.match(line))}
    rows = [found for line in lines if (found := _KEY.match(line))]
    for at, row in enumerate(rows):
        if row["key"] in names and len(row["indent"]) == 2:
            below = {one["key"]: (one["value"] or "").strip() for one in rows[at + 1 : at + 4]}
            if below.get("Medium") == "Memory":
                yield from option_facts("shm-size", below.get("SizeLimit", ""), source)
