"""The launch command of a server as facts: each flag that names a knob, under the canonical name.

Facts beside the knobs: target.system, target.version (from an image's tag), model.name, env.NAME, container.*, and
gpu.name / gpu.count where a comment on the command names the device ("# 4x A10").
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from infradoc.sources.launch_before import before_facts, slurm_facts
from infradoc.sources.launch_container import docker_run, image_system, is_container
from infradoc.sources.launch_env import env_facts
from infradoc.sources.launch_flags import flag_facts, is_switch, takes_value, typed
from infradoc.sources.launch_shell import ASSIGNMENT, commands, shell_text, split_command, unset, unwrapped
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Fact
from infradoc_rules.sizing.gpus import gpu_named

_SYSTEMS = (
    ("vllm", re.compile(r"\bvllm\s+serve\b|vllm\.entrypoints|\bvllm/vllm-openai\b|\bvllm-openai\b")),
    (
        "sglang",
        re.compile(
            r"\bsglang[. ](?:launch_server|serve|srt)\b|\bsglang(?:_router|-router)?[. ]launch_\w+"
            r"|(?:^|[\s/])sglang(?=[:@])"
        ),
    ),
    ("tgi", re.compile(r"\btext-generation-(?:launcher|inference)\b")),
    (
        "llamacpp",
        re.compile(r"\bllama-(?:server|cli)\b|\bllama\.cpp\b|\bllamafile\b|\bllama_cpp\.server\b|--llamacpp\b"),
    ),
    ("lmdeploy", re.compile(r"\blmdeploy\b")),
    ("trtllm", re.compile(r"\btrtllm-(?:serve|llmapi-launch)\b|\btensorrt_llm\b")),
    ("ollama", re.compile(r"\bollama\b")),
    ("infradoc", re.compile(r"\binfradoc(?:_engine)?\s+serve(?![\w:-])")),
)
_POSITIONAL = {
    "vllm": ("serve",),
    "lmdeploy": ("api_server", "gradio", "chat"),
    "trtllm": ("trtllm-serve", "serve"),
    "ollama": ("run",),
    "infradoc": ("serve",),
}
_BEFORE = frozenset({"env", "sudo", "nohup", "exec", "time", "export"})
_COUNTED = lazy(r"(?i)\b(\d{1,4}) ?[x\u00d7] ?(?:nvidia )?(.{2,40})")


def system_of(command: str) -> str | None:
    """The engine that a launch command starts; None when it is none we know."""
    return next((system for system, pattern in _SYSTEMS if pattern.search(command)), None)


def launch_facts(command: str, source: str | None = "launch.txt") -> list[Fact]:
    """Facts of one or several launch commands with their variables, container options and comments."""
    system = system_of(command)
    facts = [Fact("target.system", system, "flag", source)] if system else []
    for words in commands(command):
        facts += command_facts(words, system, source)
    facts += slurm_facts(command, source)
    facts += comment_facts(command, source)
    return facts


def command_facts(words: Sequence[str], system: str | None, source: str | None) -> list[Fact]:
    """Facts of the words of one command. `system`: the engine of the text around it.

    Of a command that names no engine beside one that does (a client, a benchmark) only the variables count.
    """
    facts: list[Fact] = []
    rest = list(words)
    while rest and (ASSIGNMENT.match(rest[0]) or rest[0] in _BEFORE):
        name, equals, text = rest.pop(0).partition("=")
        facts += env_facts(system, name, text, source) if equals else ()
    before, rest = unwrapped(rest)
    facts += before_facts(before, system, source)
    if is_container(rest):
        started = docker_run(rest, source)
        inside = system_of(" ".join(started.words)) or image_system(started.image) or system
        for name, text in started.env:
            facts += env_facts(inside, name, text, source)
        return facts + started.facts + program_facts(inside, started.words, source)
    own = system_of(" ".join(rest))
    if own is None and system is not None and rest and not rest[0].startswith("-"):
        return facts
    return facts + program_facts(own or system, rest, source)


def program_facts(system: str | None, words: Sequence[str], source: str | None) -> list[Fact]:
    """Facts of a program with its words, in a container or not; `bash -c "..."` is taken apart."""
    script = shell_text(words)
    if script is not None:
        return [fact for inner in commands(script) for fact in command_facts(inner, system, source)]
    return argument_facts(system, unwrapped(words)[1], source)


def argument_facts(system: str | None, words: Sequence[str], source: str | None) -> list[Fact]:
    """Facts of a program's own words: flags with their values, and the model that it is given without a flag."""
    facts: list[Fact] = []
    model = ""
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word.startswith("-") and len(word) > 1:
            name, equals, text = word.partition("=")
            values: list[str] = []
            while not equals and at < len(words) and _is_value(words[at]):
                if (values and not words[at].isdecimal()) or (not values and not takes_value(system, name, words[at])):
                    break  # only lists of numbers go over several words
                values.append(words[at])
                at += 1
            value = text if equals else " ".join(values)
            facts += () if unset(value) else flag_facts(system, name, value, source)
        elif ASSIGNMENT.match(word):
            name, _, text = word.partition("=")
            facts += env_facts(system, name, text, source)
        elif words[at - 2 : at - 1] and words[at - 2].rpartition("/")[2] in _POSITIONAL.get(system or "", ()):
            model = model or ("" if word in ("serve", "api_server") else word)
        elif not model and "/" in word and is_switch(words[at - 2]) and system in _POSITIONAL and at > 1:
            model = word
    return [*facts, *model_facts(model, facts, source)]


def model_facts(model: str, facts: Sequence[Fact], source: str | None) -> Iterator[Fact]:
    """model_checkpoint of a model given without a flag, and model.name either way."""
    flagged = next((str(fact.value) for fact in facts if fact.name == "model_checkpoint"), "")
    if model and not flagged:
        yield Fact("model_checkpoint", model, "flag", source)
    if flagged or model:
        yield Fact("model.name", flagged or model, "flag", source)


def comment_facts(command: str, source: str | None) -> Iterator[Fact]:
    """gpu.name and gpu.count that a comment names: "# 4x A10", "# Tesla V100". What tools print beats them."""
    for comment in re.findall(r"(?:^|\s)#\s?(.{0,200})", command):
        counted = _COUNTED.search(comment)
        gpu = gpu_named(comment)
        if gpu is not None:
            yield Fact("gpu.name", gpu.name, "default", source)
            if counted is not None and gpu_named(counted[2]) is not None:
                yield Fact("gpu.count", int(counted[1]), "default", source)
            return


def _is_value(word: str) -> bool:
    return not word.startswith("-") or re.fullmatch(r"-\d+(\.\d+)?", word) is not None


__all__ = [
    "argument_facts",
    "command_facts",
    "launch_facts",
    "program_facts",
    "split_command",
    "system_of",
    "typed",
]
