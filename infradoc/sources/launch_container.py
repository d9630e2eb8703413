"""What a container gives the server in it: memory, cores, shared memory, devices, and the image's version.

Facts: shm_size and cgroup.memory_limit_bytes (bytes), cpu_limit (cores), ipc_host (bool), container_devices,
container.{engine,image,gpus,devices,ulimits,network,privileged,runtime,cap_add}; target.version from the image's tag.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from infradoc.sources.launch_flags import cores, size_bytes
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Fact

_RUNTIMES = frozenset({"docker", "podman", "nerdctl"})
# Options of `docker run` that take no value; every other one takes the word after it, unless it was joined with "=".
_BARE = frozenset(
    [
        "-d",
        "--detach",
        "--rm",
        "-i",
        "--interactive",
        "-t",
        "--tty",
        "-it",
        "-ti",
        "-dit",
        "-itd",
        "-tid",
        "-tdi",
        "-dti",
        "-idt",
        "-P",
        "--publish-all",
        "--init",
        "--privileged",
        "--read-only",
        "--no-healthcheck",
        "--oom-kill-disable",
        "--sig-proxy",
        "--disable-content-trust",
        "-q",
        "--quiet",
        "--replace",
        "--tls-verify",
    ]
)
# By the last part of the image's name: people name their own builds after the engine ("team_vllm:2024").
_ENGINES = (
    ("vllm", re.compile(r"(?:^|/)(?![\w.-]*(?:router|production-stack))[\w.-]*vllm[\w.-]*(?=[:@]|$)|/vllm/")),
    ("sglang", re.compile(r"(?:^|/)(?![\w.-]*router)[\w.-]*sglang[\w.-]*(?=[:@/]|$)")),
    ("tgi", re.compile(r"text-generation-inference")),
    ("llamacpp", re.compile(r"llama\.cpp|llama-server|llamafile")),
    ("lmdeploy", re.compile(r"lmdeploy")),
    ("trtllm", re.compile(r"tensorrt-llm|trtllm")),
    ("ollama", re.compile(r"(?:^|/)(?![\w.-]*(?:webui|exporter))[\w.-]*ollama[\w.-]*(?=[:@/]|$)")),
)
_TAG = lazy(r":v?(\d+\.\d+(?:\.\d+)?(?:\.post\d+|rc\d+)?)(?=[-_@]|$)")


@dataclass(slots=True)
class Started:
    """A `docker run` taken apart."""

    facts: list[Fact]
    env: list[tuple[str, str]] = field(default_factory=list)
    image: str = ""
    words: list[str] = field(default_factory=list)  # entry point and arguments of the program inside


def is_container(words: Sequence[str]) -> bool:
    """Whether the command begins with `docker run` or alike."""
    return len(words) > 1 and words[0].rpartition("/")[2] in _RUNTIMES and words[1] in ("run", "create")


def docker_run(words: Sequence[str], source: str | None) -> Started:
    """The options, variables, image and arguments of a `docker run` command."""
    out = Started([Fact("container.engine", words[0].rpartition("/")[2], "flag", source)])
    entry: list[str] = []
    at = 2
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-"):
            out.image, out.words = word, [*entry, *words[at:]]
            break
        name, equals, text = word.partition("=")
        if not equals and name in _BARE:
            text = "true"
        elif not equals and len(name) > 2 and name[:2] in ("-e", "-m", "-v", "-p") and not name.startswith("--"):
            name, text = name[:2], name[2:]
        elif not equals and at < len(words):
            text = words[at]
            at += 1
        if name in ("-e", "--env"):
            key, given, value = text.partition("=")
            out.env += [(key, value)] if given else []
        elif name == "--entrypoint":
            entry = text.split()
        else:
            out.facts += option_facts(name.lstrip("-"), text, source)
    out.facts += image_facts(out.image, source)
    return out


def image_system(image: str) -> str | None:
    """The engine that an image holds, by its name."""
    return next((system for system, pattern in _ENGINES if pattern.search(image)), None)


def image_facts(image: str, source: str | None) -> Iterator[Fact]:
    """The image, and the engine's version where the tag of its own image is one."""
    if not image:
        return
    yield Fact("container.image", image, "flag", source)
    tag = _TAG.search(image)
    if tag is not None and image_system(image) is not None:
        yield Fact("target.version", tag[1], "default", source)


def option_facts(name: str, text: str, source: str | None) -> Iterator[Fact]:
    """Facts of one container option, under docker's or compose's name for it."""
    word = name.replace("_", "-")
    text = str(text).strip()
    if word == "shm-size" and (size := size_bytes(text)) is not None:
        yield Fact("shm_size", size, "flag", source)
    elif word in ("memory", "m", "mem-limit") and (size := size_bytes(text)) is not None:
        yield Fact("cgroup.memory_limit_bytes", size, "flag", source)
    elif word == "cpus" and (count := cores(text)) is not None:
        yield Fact("cpu_limit", count, "flag", source)
    elif word == "cpuset-cpus" and (listed := _listed(text)):
        yield Fact("cpu_limit", float(listed), "flag", source)
    elif word == "ipc":
        yield Fact("ipc_host", text == "host", "flag", source)
    elif word == "gpus":
        yield Fact("container.gpus", text.strip("\"'"), "flag", source)
        yield Fact("container_devices", text.strip("\"'"), "flag", source)
    elif word in ("device", "devices"):
        yield Fact("container.devices", text, "flag", source)
    elif word in ("ulimit", "ulimits"):
        yield Fact("container.ulimits", text, "flag", source)
    elif word in ("network", "net", "runtime", "cap-add", "privileged"):
        key = "network" if word == "net" else word.replace("-", "_")
        yield Fact(f"container.{key}", True if text == "true" else text, "flag", source)


def _listed(text: str) -> int:
    """How many CPUs "0-7,16" names; 0 when it is no list."""
    count = 0
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part)
        if found is None:
            return 0
        count += int(found[2] or found[1]) - int(found[1]) + 1
    return count
