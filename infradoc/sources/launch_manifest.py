"""Containers that a file describes: a Pod, Deployment, RayService or the like, a compose file, a chart's values.

Documents are parsed YAML or JSON. Facts as in `launch_container`, knobs of the arguments and variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from infradoc.sources.launch import program_facts, split_command, system_of
from infradoc.sources.launch_container import image_facts, image_system, option_facts
from infradoc.sources.launch_env import env_facts
from infradoc.sources.launch_shell import filled, shell_text
from infradoc_rules.model import Fact

_DEEPEST = 40
_OPTIONS = ("shm_size", "ipc", "mem_limit", "cpus", "devices", "ulimits", "runtime", "privileged", "network_mode")


def manifest_facts(document: Any, source: str | None) -> tuple[str | None, list[Fact]]:
    """(engine, facts) of all containers of a document that run a server we know; (None, []) when none does."""
    system: str | None = None
    facts: list[Fact] = []
    for container in containers(document, 0):
        own, found = container_facts(container, source)
        if own is not None:
            system = system or own
            facts += [Fact("target.system", own, "flag", source), *found]
    return (system, [*pod_facts(document, source), *facts]) if system else (None, [])


def pod_facts(document: Any, source: str | None) -> Iterator[Fact]:
    """What a pod gives its containers: the host's IPC, and /dev/shm where a memory-backed volume is mounted there."""
    mounted = {
        str(row.get("name"))
        for node in _nodes(document, 0)
        for row in _rows(node.get("volumeMounts"))
        if str(row.get("mountPath", "")).rstrip("/") == "/dev/shm"
    }
    for node in _nodes(document, 0):
        if node.get("hostIPC") is True:
            yield Fact("ipc_host", True, "flag", source)
        for volume in _rows(node.get("volumes")):
            if at(volume, "emptyDir", "medium") == "Memory" and str(volume.get("name")) in mounted:
                yield from option_facts("shm-size", str(at(volume, "emptyDir", "sizeLimit") or ""), source)


def containers(node: Any, depth: int) -> Iterator[dict[str, Any]]:
    """Every mapping that names an image, be it a text or {repository, tag}, and KServe's models."""
    if depth > _DEEPEST:
        return
    if isinstance(node, dict):
        if _image(node) or ("modelFormat" in node and "args" in node):
            yield node
            return
        for value in node.values():
            yield from containers(value, depth + 1)
    elif isinstance(node, list):
        for value in node:
            yield from containers(value, depth + 1)


def container_facts(container: Mapping[str, Any], source: str | None) -> tuple[str | None, list[Fact]]:
    """(engine, facts) of one container; what comes from a secret or a variable of elsewhere has no value here."""
    given = container.get("environment", container.get("env"))
    variables = dict(_environment(given))
    holder = container["image"] if isinstance(container.get("image"), dict) else {}
    parts = (_words(container.get(key, holder.get(key)), variables) for key in ("entrypoint", "command", "args"))
    words = [word for part in parts for word in part]
    if "modelFormat" in container:  # KServe's own spelling
        words = [word.replace("--model_id", "--model") for word in words]
    image = _image(container)
    system = system_of(shell_text(words) or " ".join(words)) or image_system(image) or _by_format(container)
    if system is None:
        return None, []
    facts = [*program_facts(system, words, source), *image_facts(image, source)]
    for name, text in variables.items():
        facts += env_facts(system, name, text, source)
    for key in _OPTIONS:
        if isinstance(container.get(key), str | int | float):
            facts += option_facts(key, str(container[key]), source)
    return system, [*facts, *limit_facts(container, source)]


def limit_facts(container: Mapping[str, Any], source: str | None) -> Iterator[Fact]:
    """Memory, cores and devices that a container may have, in Kubernetes' words or compose's."""
    for limits in (at(container, "resources", "limits"), at(container, "deploy", "resources", "limits")):
        if isinstance(limits, dict):
            yield from option_facts("memory", str(limits.get("memory", "")), source)
            yield from option_facts("cpus", str(limits.get("cpu", limits.get("cpus", ""))), source)
            for key in ("nvidia.com/gpu", "amd.com/gpu"):
                if str(limits.get(key, "")).isdecimal():
                    yield Fact("gpu.visible", int(limits[key]), "flag", source)


def at(node: Any, *path: str) -> Any:
    """The value below a path of keys; None where it ends."""
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    return node


def _image(node: Mapping[str, Any]) -> str:
    image = node.get("image")
    if isinstance(image, dict) and isinstance(image.get("repository"), str):
        return f"{image['repository']}:{image.get('tag') or 'latest'}"
    return image if isinstance(image, str) else ""


def _by_format(container: Mapping[str, Any]) -> str | None:
    """KServe's runtime for Hugging Face models is vLLM."""
    name = str(at(container, "modelFormat", "name") or "").lower()
    return "vllm" if name in ("huggingface", "vllm") else None


def _words(value: Any, variables: Mapping[str, str]) -> list[str]:
    """Words of a command in either form; `$(NAME)` of Kubernetes and `${NAME:-default}` of compose are filled in."""
    words = (
        split_command(value)
        if isinstance(value, str)
        else [str(word) for word in value]
        if isinstance(value, list)
        else []
    )
    for name, text in variables.items():
        words = [word.replace(f"$({name})", text) for word in words]
    return [filled(word.replace("$$", "$"), variables) for word in words]


def _environment(value: Any) -> Iterator[tuple[str, str]]:
    """Compose writes a mapping or "A=b", Kubernetes {name, value}."""
    if isinstance(value, dict):
        yield from ((str(name), _text(text)) for name, text in value.items())
    for row in value if isinstance(value, list) else []:
        if isinstance(row, dict) and "name" in row and "value" in row:
            yield str(row["name"]), _text(row["value"])
        elif isinstance(row, str) and "=" in row:
            name, _, text = row.partition("=")
            yield name, filled(text, {})


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else filled(str(value), {})


def _nodes(node: Any, depth: int) -> Iterator[dict[str, Any]]:
    if depth > _DEEPEST:
        return
    if isinstance(node, dict):
        yield node
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _nodes(value, depth + 1)


def _rows(value: Any) -> Iterator[dict[str, Any]]:
    yield from (row for row in value if isinstance(row, dict)) if isinstance(value, list) else ()
