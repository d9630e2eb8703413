"""`docker inspect` (or podman's): what a container was started with, and how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infradoc.sources.launch import program_facts, system_of
from infradoc.sources.launch_container import image_facts, image_system
from infradoc.sources.launch_env import env_facts
from infradoc.sources.launch_manifest import at
from infradoc_rules.model import Fact


def inspected(document: Any) -> list[dict[str, Any]]:
    """The containers in the output of `docker inspect`; empty when it is something else."""
    rows = document if isinstance(document, list) else [document]
    found = [row for row in rows if isinstance(at(row, "HostConfig"), dict) and isinstance(at(row, "Config"), dict)]
    return found if len(found) == len(rows) else []


def inspect_facts(document: Any, source: str | None) -> tuple[str | None, list[Fact]]:
    """(engine, facts) of the containers that run a server we know; limits also of others, under no engine."""
    system: str | None = None
    facts: list[Fact] = []
    for row in inspected(document):
        config = row["Config"]
        image = str(config.get("Image", ""))
        words = [str(word) for key in ("Entrypoint", "Cmd") for word in config.get(key) or []]
        own = system_of(" ".join(words)) or image_system(image)
        if own is not None:
            system = system or own
            facts += [Fact("target.system", own, "flag", source), *image_facts(image, source)]
            for pair in config.get("Env") or []:
                name, _, text = str(pair).partition("=")
                facts += env_facts(own, name, text, source)
            facts += program_facts(own, words, source)
        facts += _limits(row["HostConfig"], source)
    return system, facts


def _limits(host: dict[str, Any], source: str | None) -> Iterator[Fact]:
    """0 stands for no limit."""
    for key, name in (("ShmSize", "shm_size"), ("Memory", "cgroup.memory_limit_bytes")):
        if isinstance(host.get(key), int) and host[key] > 0:
            yield Fact(name, host[key], "flag", source)
    cores = host.get("NanoCpus")
    quota, period = host.get("CpuQuota"), host.get("CpuPeriod") or 100_000
    if isinstance(cores, int) and cores > 0:
        yield Fact("cpu_limit", cores / 1e9, "flag", source)
    elif isinstance(quota, int) and quota > 0:
        yield Fact("cpu_limit", quota / period, "flag", source)
    if host.get("IpcMode"):
        yield Fact("ipc_host", host["IpcMode"] == "host", "flag", source)
