"""Whether what the pages of the playbooks tell people to type is there: flags, metric names, commands of infradoc.

A flag that no server takes stops a server from starting, and a metric name that is none shows an empty plot.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module, resources
from typing import Any

import infradoc_playbooks
from infradoc.cli.app import commands
from infradoc.errors import InfradocError
from infradoc_rules.maps import SYSTEMS, load_map
from infradoc_rules.signals import HISTOGRAM_SUFFIXES, signal_table
from infradoc_rules.vocabulary import finding_ids
from infradoc_rules.yaml_file import load_plain

# Flags of programs that are neither engines nor ours, and whose they are.
FOREIGN = {
    "--cap-add": "docker run",
    "--ulimit": "docker run",
    "--pid": "py-spy",
    "--gpu-reset": "nvidia-smi",
    "--query-compute-apps": "nvidia-smi",
    "--query-gpu": "nvidia-smi",
    "--reset-applications-clocks": "nvidia-smi",
    "--reset-gpu-clocks": "nvidia-smi",
}
_FLAG = re.compile(r"(?<![\w-])--[a-zA-Z][\w-]*", re.ASCII)
_METRIC = re.compile(
    r"(?<![\w/.:-])(?:(?:vllm|sglang|llamacpp|lmdeploy):[a-zA-Z]\w*|(?:llm|tgi|trtllm)_[a-z]\w*)(?![\w*:-])", re.ASCII
)
_SEARCH = re.compile(r"/metrics \| grep (?:-\w+ )*(?:'(?P<quoted>[^'\n]+)'|(?P<bare>[\w:]+))", re.ASCII)
_OR = re.compile(r"\|(?![^()]*\))")  # not those inside of brackets
_BEYOND = re.compile(r"\.\*|\{|\w+=")  # what follows a metric's name: labels and values
_CODE = re.compile(
    r"^(?P<fence>`{3,})[^\n]*\n(?P<block>.*?)^(?P=fence)|`(?P<inline>[^`\n]+)`", re.MULTILINE | re.DOTALL
)
_PLACEHOLDER = re.compile(r"[A-Z][A-Z_|]*")
_ETC = re.compile(r",?(?:\.\.\.|…)")
_UNSET = re.compile(r"=N\b")


def problems() -> list[str]:
    """One sentence for every name in a page that leads nowhere; empty when there is none."""
    found: list[str] = []
    for name in (*infradoc_playbooks.ids(), *infradoc_playbooks.mechanisms()):
        for lang in infradoc_playbooks.LANGUAGES:
            try:
                text = infradoc_playbooks.get(name, lang)
            except infradoc_playbooks.PlaybookError:  # the lint of the pages themselves says which are missing
                continue
            found += [f"playbook {name} ({lang}): {fault}" for fault in faults(text)]
    return found


def faults(text: str) -> list[str]:
    """What a page names that is not there, each once."""
    return list(dict.fromkeys([*_flags(text), *_metrics(text), *_commands(text)]))


def _flags(text: str) -> Iterator[str]:
    known = known_flags()
    for flag in _FLAG.findall(text):
        if flag not in known and flag not in FOREIGN:
            yield f"{flag} is no flag that an engine or infradoc takes."


def _metrics(text: str) -> Iterator[str]:
    known = known_metrics()
    for name in _METRIC.findall(text):
        if name not in known:
            yield f"{name} is no metric of signals.yaml or of an engine's map."
    for found in _SEARCH.finditer(text):
        for wanted in _OR.split(found["quoted"] or found["bare"]):
            part = _BEYOND.split(wanted, maxsplit=1)[0]
            if part and not any(re.search(part, name) for name in known):
                yield f"{wanted!r} is searched for in a metrics page, and no metric's name holds it."


@lru_cache(maxsize=1)
def known_flags() -> frozenset[str]:
    """The flags of engines (knobs.yaml, versions.yaml), of the bundled engine's knobs, and of infradoc's commands."""
    knobs, versions = (load_plain(resources.files("infradoc_rules") / f"{file}.yaml") for file in ("knobs", "versions"))
    return frozenset({*_within(knobs), *_within(versions), *own_flags()})


@lru_cache(maxsize=1)
def own_flags() -> frozenset[str]:
    """The flags of the bundled engine's knobs and of infradoc's commands."""
    knobs = load_plain(resources.files("infradoc_rules") / "knobs.yaml")
    found: set[str] = set()
    for row in knobs["knobs"].values():
        if isinstance(row.get("engine"), str):
            flag = row["engine"].replace("_", "-")
            found |= {f"--{flag}", f"--no-{flag}"}
    for command in commands().values():
        made = _parser(command.module)
        found |= set(_options(made)) if made is not None else set()
    return frozenset(found)


def _within(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _within(key)
            yield from _within(item)
    elif isinstance(value, list):
        for item in value:
            yield from _within(item)
    elif isinstance(value, str):
        yield from _FLAG.findall(value)


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for part in action.choices.values():
                yield from _options(part)


@lru_cache(maxsize=1)
def known_metrics() -> frozenset[str]:
    """Our series and the engines', histograms with and without the suffixes of their series."""
    found = set(signal_table().signals) | set(signal_table().series_names())
    for system in SYSTEMS:
        found |= load_map(system).names
    return frozenset(found | {name.removesuffix(suffix) for name in found for suffix in HISTOGRAM_SUFFIXES})


def _parser(module: str) -> argparse.ArgumentParser | None:
    """A command's parser; None for those that hand all flags to the bundled engine."""
    make = getattr(import_module(f"infradoc.cli.{module}"), "parser", None)
    return None if make is None else make()


def _commands(text: str) -> Iterator[str]:
    for words in _typed(text):
        shown = " ".join(words)[:120]
        if (fault := _fault(words)) is not None:
            yield f"`{shown}` is not accepted: {fault.rstrip('.')}."


def _typed(text: str) -> Iterator[list[str]]:
    """The words of each command of infradoc in the code of a page."""
    for found in _CODE.finditer(text):
        code = found["inline"] or found["block"]
        for line in code.replace("\\\n", " ").splitlines():
            if "infradoc " in line:
                yield from _parts(line)


def _parts(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    try:
        words = list(lexer)
    except ValueError:  # an open quote: no command but a piece of one
        words = line.split()
    part: list[str] = []
    for word in [*words, ";"]:
        if set(word) <= set("|&;"):
            if "infradoc" in part[:2]:
                yield part[part.index("infradoc") :]
            part = []
        else:
            part.append(word)


def _fault(words: list[str]) -> str | None:
    """Why infradoc does not take these words; None when it does, or when they only name a command."""
    name, *rest = words[1:] or [""]
    if name in ("--help", "--version", "COMMAND"):
        return None
    command = commands().get(name)
    if command is None:
        return f"there is no command {name!r}"
    parser = _parser(command.module)
    if not rest or parser is None:
        return None
    try:
        args = parser.parse_args([_UNSET.sub("=1", _ETC.sub("", word)) for word in rest])
        if name == "bench":
            import_module("infradoc.cli.bench").spec_of(args)
    except InfradocError as error:
        return str(error)
    except SystemExit:  # --help
        return None
    return _unknown_id(name, args)


def _unknown_id(name: str, args: argparse.Namespace) -> str | None:
    """A page or a finding that the command names and that is none."""
    pages = (*infradoc_playbooks.ids(), *infradoc_playbooks.mechanisms())
    asked, known = (args.id, pages) if name == "playbook" else (getattr(args, "finding", None), finding_ids())
    if not isinstance(asked, str) or _PLACEHOLDER.fullmatch(asked) or asked in known:
        return None
    return f"there is no {'page' if name == 'playbook' else 'finding'} {asked!r}"
