"""What stands before a program: Slurm's directives and options, MPI's and apptainer's variables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from infradoc.sources.launch_container import option_facts
from infradoc.sources.launch_env import env_facts
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Fact

_DIRECTIVE = lazy(r"^#SBATCH[ \t]+(\S.*)$", re.MULTILINE)
_GPUS = lazy(r"(?:^|:)(\d{1,4})$|^gpu$")
_ENV_WORD = lazy(r"^([A-Z][A-Z0-9_]{1,60})=(.*)$")


def slurm_facts(text: str, source: str | None) -> Iterator[Fact]:
    """The limits that the `#SBATCH` lines of a batch script ask for."""
    for row in _DIRECTIVE.findall(text):
        yield from before_facts(row.split(" #")[0].split(), None, source)


def before_facts(words: Sequence[str], system: str | None, source: str | None) -> Iterator[Fact]:
    """Slurm's memory (its cgroup enforces it), cores and GPUs on a node, and variables handed to the program."""
    for at, word in enumerate(words):
        name, equals, text = word.partition("=")
        if word.startswith("-"):
            text = text if equals else words[at + 1] if at + 1 < len(words) else ""
            yield from _option(name, text, source)
        elif found := _ENV_WORD.match(word):
            yield from env_facts(system, found[1], found[2], source)


def _option(name: str, text: str, source: str | None) -> Iterator[Fact]:
    if name == "--mem":  # bare numbers count MiB
        yield from option_facts("memory", f"{text}M" if text.isdecimal() and text != "0" else text, source)
    elif name in ("--cpus-per-task", "-c"):
        yield from option_facts("cpus", text, source)
    elif name in ("--gres", "--gpus-per-node", "--gpus", "-G"):
        counted = _GPUS.search(text)
        if counted is not None:
            yield Fact("gpu.visible", int(counted[1] or 1), "flag", source)
    elif name in ("--env", "--export"):
        for part in text.split(","):
            if found := _ENV_WORD.match(part):
                yield from env_facts(None, found[1], found[2], source)
