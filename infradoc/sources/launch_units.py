"""Server starts for other tools than a shell: systemd, supervisord, Dockerfiles, Ollama's Modelfile and variables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from infradoc.sources.launch import argument_facts, launch_facts, program_facts, split_command, system_of
from infradoc.sources.launch_container import image_facts, image_system, option_facts
from infradoc.sources.launch_env import env_facts
from infradoc.sources.launch_flags import flag_facts
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Fact

_ROW = lazy(r"^(\w+) ?= ?(.*)$")
_VARIABLE = lazy(r"^(?:export )?([A-Z][A-Z0-9_]*)=(.*)$")
_PAIR = lazy(r"([A-Za-z_]\w*)=(?:[\"']([^\"']*)[\"']|([^,\"'\s]+))")
_LIMITS = {"CPUQuota": "cpus", "MemoryMax": "memory", "MemoryLimit": "memory", "ShmSize": "shm-size"}
_OWN = (("ollama", "OLLAMA_"), ("vllm", "VLLM_"), ("llamacpp", "LLAMA_ARG_"))


def joined(text: str) -> list[str]:
    """Lines with their continuations; comments between continued lines are left out, as Docker and systemd do."""
    kept = [line for line in text.split("\n") if not line.lstrip().startswith(("#", ";"))]
    return [line.strip() for line in re.sub(r"\\[ \t]*\n", " ", "\n".join(kept)).split("\n")]


def unit_facts(text: str, source: str | None) -> list[Fact]:
    """A systemd unit or drop-in: the command of ExecStart=, the variables of Environment=, the limits of its cgroup.

    Podman's quadlets, units that hold a `[Container]`, name an image and what it is given: Image=, Exec=, ShmSize=.
    """
    rows = [(found[1], found[2]) for line in joined(text) if (found := _ROW.match(line))]
    commands = [value.lstrip("-@:+!") for key, value in rows if key == "ExecStart" and value]
    variables = [word.partition("=") for key, value in rows if key == "Environment" for word in split_command(value)]
    image = next((value for key, value in rows if key == "Image"), "")
    inside = [word for key, value in rows if key == "Exec" for word in split_command(value)]
    system = system_of("\n".join([*commands, " ".join(inside)])) or image_system(image)
    system = system or owner_of(name for name, _, _ in variables)
    facts = [Fact("target.system", system, "flag", source)] if system else []
    for name, _, value in variables:
        facts += env_facts(system, name, value, source)
    for command in commands:
        facts += launch_facts(command, source)
    facts += [*image_facts(image, source), *program_facts(system, inside, source)]
    for key, value in rows:
        facts += option_facts(_LIMITS[key], value, source) if key in _LIMITS else ()
    return facts


def supervisor_facts(text: str, source: str | None) -> list[Fact]:
    """supervisord's `[program:x]`: `command=` and `environment=A="b",C="d"`; indented lines go on."""
    rows = [(found[1], found[2]) for line in re.sub(r"\n[ \t]+", " ", text).split("\n") if (found := _ROW.match(line))]
    commands = [value for key, value in rows if key == "command"]
    system = system_of("\n".join(commands))
    facts = [Fact("target.system", system, "flag", source)] if system else []
    for key, value in rows:
        for name, quoted, bare in _PAIR.findall(value) if key == "environment" else ():
            facts += env_facts(system, name, quoted or bare, source)
    return facts + [fact for command in commands for fact in launch_facts(command, source)]


def dockerfile_facts(text: str, source: str | None) -> list[Fact]:
    """A Dockerfile: the last stage's image, ENV, and what ENTRYPOINT and CMD (JSON or shell form) start together."""
    image = ""
    entry: list[str] = []
    command: list[str] = []
    variables: list[tuple[str, str]] = []
    for line in joined(text):
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        if word.upper() == "FROM":
            image = next((part for part in rest.split() if not part.startswith("--")), "")
        elif word.upper() == "ENV":
            variables += _variables(rest)
        elif word.upper() == "ENTRYPOINT":
            entry, command = _words(rest), []
        elif word.upper() == "CMD":
            command = _words(rest)
    words = [*entry, *command]
    system = system_of(" ".join(words)) or image_system(image)
    if system is None:
        return []
    facts = [Fact("target.system", system, "flag", source), *image_facts(image, source)]
    for name, value in variables:
        facts += env_facts(system, name, value, source)
    return facts + argument_facts(system, words, source)


def modelfile_facts(text: str, source: str | None) -> list[Fact]:
    """Ollama's Modelfile: FROM names the model, PARAMETER lines set its knobs."""
    facts = [Fact("target.system", "ollama", "flag", source)]
    for line in text.split("\n"):
        words = line.split()
        if len(words) == 2 and words[0].upper() == "FROM":
            facts += [Fact(name, words[1], "flag", source) for name in ("model_checkpoint", "model.name")]
        elif len(words) == 3 and words[0].upper() == "PARAMETER":
            facts += flag_facts("ollama", words[1], words[2], source)
    return facts


def variables_facts(text: str, source: str | None) -> list[Fact]:
    """A file of variables (`OLLAMA_NUM_PARALLEL=4`), of the engine whose prefix they have."""
    found = [match for line in text.split("\n") if (match := _VARIABLE.match(line.strip()))]
    system = owner_of(match[1] for match in found)
    facts = [Fact("target.system", system, "flag", source)] if system else []
    for match in found:
        facts += env_facts(system, match[1], match[2], source)
    return facts


def owner_of(names: Iterable[str]) -> str | None:
    """The engine that reads variables of such names."""
    given = list(names)
    return next((system for system, prefix in _OWN if any(name.startswith(prefix) for name in given)), None)


def _words(text: str) -> list[str]:
    """The words of a JSON or shell form; `sh -c "..."` is taken apart."""
    words = split_command(text)
    if text.startswith("["):
        try:
            words = [str(word) for word in json.loads(text)]
        except ValueError:
            words = re.findall(r"[^\s\[\],\"']+", text)
    shell = len(words) > 2 and words[0].rpartition("/")[2] in ("bash", "sh") and re.fullmatch(r"-\w*c", words[1])
    return split_command(words[2]) if shell else words


def _variables(text: str) -> Iterator[tuple[str, str]]:
    words = split_command(text)
    if words and "=" not in words[0]:
        yield words[0], " ".join(words[1:])  # the old form, one variable a line
        return
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            yield name, value
