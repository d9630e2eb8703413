"""Kubernetes and compose files that start a server we know, as facts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span, yaml_spans
from infradoc.sources.launch import argument_facts, split_command, system_of
from infradoc.sources.launch_container import image_facts, image_system, option_facts
from infradoc.sources.launch_env import env_facts
from infradoc_rules.model import Fact

_HEAD = re.compile(r"^(?:apiVersion|services):")
_DEEPEST = 40
_OPTIONS = ("shm_size", "ipc", "mem_limit", "cpus", "devices", "ulimits", "runtime", "privileged", "network_mode")


class ConfigKind:
    """A Pod, Deployment, InferenceService or the like, or a compose file."""

    name = "config"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """YAML documents with `apiVersion:` or `services:` at the left that run an engine's image or command."""
        return yaml_spans(lines, _wanted)

    def read(self, segment: Segment) -> Artefact:
        """Knobs of the arguments and variables, limits of the container."""
        out = Artefact()
        document = _parsed(segment.lines)
        out.facts += _pod_facts(document, segment.source, 0)
        for container in _containers(document, 0):
            system, facts = _container_facts(container, segment.source)
            if system is not None:
                out.system = out.system or system
                out.facts += [Fact("target.system", system, "flag", segment.source), *facts]
        return out


def _wanted(lines: Sequence[str]) -> bool:
    if not any(_HEAD.match(line) for line in lines):
        return False
    return any(_container_facts(container, None)[0] for container in _containers(_parsed(lines), 0))


def _parsed(lines: Sequence[str]) -> Any:
    import yaml  # not above: most cases hold no YAML

    try:
        return yaml.load("\n".join(lines), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError):
        return None  # cut off or mixed with other text: its lines stay with the log


def _pod_facts(node: Any, source: str, depth: int) -> Iterator[Fact]:
    """What the pod gives its containers: the host's IPC, and /dev/shm from a memory-backed volume with a size."""
    if depth > _DEEPEST:
        return
    if isinstance(node, dict):
        if node.get("hostIPC") is True:
            yield Fact("ipc_host", True, "flag", source)
        if _at(node, "emptyDir", "medium") == "Memory":
            yield from option_facts("shm-size", str(_at(node, "emptyDir", "sizeLimit") or ""), source)
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _pod_facts(value, source, depth + 1)


def _containers(node: Any, depth: int) -> Iterator[dict[str, Any]]:
    if depth > _DEEPEST:
        return
    if isinstance(node, dict):
        if "image" in node and isinstance(node["image"], str):
            yield node
            return
        for value in node.values():
            yield from _containers(value, depth + 1)
    elif isinstance(node, list):
        for value in node:
            yield from _containers(value, depth + 1)


def _container_facts(container: dict[str, Any], source: str | None) -> tuple[str | None, list[Fact]]:
    words = [word for key in ("command", "entrypoint", "args") for word in _words(container.get(key))]
    image = str(container["image"])
    system = system_of(" ".join(words)) or image_system(image)
    if system is None:
        return None, []
    facts = [*argument_facts(system, words, source), *image_facts(image, source)]
    for name, text in _environment(container.get("environment", container.get("env"))):
        facts += env_facts(system, name, text, source)
    for key in _OPTIONS:
        if isinstance(container.get(key), str | int | float):
            facts += option_facts(key, str(container[key]), source)
    for limits in (_at(container, "resources", "limits"), _at(container, "deploy", "resources", "limits")):
        if isinstance(limits, dict):
            facts += option_facts("memory", str(limits.get("memory", "")), source)
            facts += option_facts("cpus", str(limits.get("cpu", limits.get("cpus", ""))), source)
    return system, facts


def _words(value: Any) -> list[str]:
    if isinstance(value, str):
        return split_command(value)
    return [str(word) for word in value] if isinstance(value, list) else []


def _environment(value: Any) -> Iterator[tuple[str, str]]:
    """Compose writes a mapping or "A=b", Kubernetes {name, value}; what comes from a secret has no value here."""
    if isinstance(value, dict):
        yield from ((str(name), str(text)) for name, text in value.items())
    for row in value if isinstance(value, list) else []:
        if isinstance(row, dict) and "name" in row and "value" in row:
            yield str(row["name"]), str(row["value"])
        elif isinstance(row, str) and "=" in row:
            name, _, text = row.partition("=")
            yield name, text


def _at(node: Any, *path: str) -> Any:
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    return node
