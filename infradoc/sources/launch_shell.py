"""The text of a shell as the words of its commands: sh, PowerShell and cmd, with what is put before a program."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from infradoc_rules.lazy_pattern import lazy

ASSIGNMENT = lazy(r"^[A-Za-z_][A-Za-z0-9_]*=")
_ENDS = frozenset({"&&", "||", ";", "|", "&", ">", ">>", "2>&1", "2>", "&>", "<", "<<EOF", "<<'EOF'"})
_CONTINUED = lazy(r"\\[ \t]*\r?\n")
_VARIABLE = lazy(r"\$(?:(\w+)|\{(\w+)(?::?-([^{}]{0,200}))?\})")
# Windows: a line goes on after a backtick (PowerShell) or a caret (cmd), and a backslash parts the names of a path.
_WINDOWS = lazy(r"[`^][ \t]*\r?\n|\b[A-Za-z]:\\|^\s*\.\\|\.exe\b|^\s*\$env:\w", re.MULTILINE)
_WINDOWS_CONTINUED = lazy(r"[ \t][`^][ \t]*\r?\n")
_WINDOWS_SET = lazy(r"(?im)^\s*(?:\$env:(\w+)[ \t]*=[ \t]*|set[ \t]+(\w+)=|setx[ \t]+(\w+)[ \t]+)")
_BACKSLASH = lazy(r"\\(?![\"\n])")
# Programs that start the program behind them. What stands between is theirs, but for variables.
_WRAPPERS = frozenset(
    re.findall(
        r"\S+",
        "srun mpirun mpiexec torchrun numactl taskset nice ionice chrt stdbuf timeout setsid unbuffer uv uvx poetry"
        " pipenv conda mamba micromamba nsys ncu catchsegv trtllm-llmapi-launch tini dumb-init gosu apptainer"
        " singularity enroot wsl ray docker podman kubectl ssh screen tmux su env sudo nohup exec time"
        " command start cmd",
    )
)
_PROGRAM = lazy(
    r"(?:.*/)?(?:vllm|sglang|text-generation-launcher|llama-[\w-]+|llama|lmdeploy|trtllm-serve|ollama|python[\d.]*w?"
    r"|infradoc)(?:\.exe)?"
)
_SHELLS = frozenset({"bash", "sh", "zsh", "dash"})


def split_command(command: str) -> list[str]:
    """Words of a command over several lines with continuations; comments and unclosed quotes are forgiven."""
    text = plain(command)
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return _forgiven(text)


def plain(text: str) -> str:
    """The text as sh would have it: continued lines joined, and what only PowerShell or cmd writes rewritten."""
    if _WINDOWS.search(text):
        text = _WINDOWS_CONTINUED.sub(" ", text)
        text = _WINDOWS_SET.sub(lambda found: f"{found[1] or found[2] or found[3]}=", text)
        text = _BACKSLASH.sub("/", text.replace("\\\n", " "))
    return _CONTINUED.sub(" ", text)


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command of a script: one a line or a quoted run of lines, parted at `&&`, `;` and pipes.

    Variables that a line above has set are filled in: start scripts keep the model's name in one.
    """
    known: dict[str, str] = {}
    pending = ""
    lines = plain(text).split("\n")
    for index, line in enumerate(lines):
        pending += line
        try:
            words = shlex.split(pending, comments=True)
        except ValueError:
            if index + 1 < len(lines):
                pending += "\n"
                continue
            words = _forgiven(pending)
        pending = ""
        for command in _parted([filled(word, known) for word in words]):
            bare = command[1:] if command[:1] == ["export"] else command
            if all(ASSIGNMENT.match(word) for word in bare):
                known.update((word.split("=", 1)[0], word.split("=", 1)[1]) for word in bare)
            yield command


def unwrapped(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """(what was put before it, the program with its words): `srun --gpus 4 vllm serve M` starts `vllm serve M`.

    A command that one of these is handed as one word (`ssh host "vllm serve M"`) is taken apart.
    """
    first = _base(words[0]) if words else ""
    if first not in _WRAPPERS or (first in ("docker", "podman") and words[1:2] not in (["exec"], ["compose"])):
        return [], list(words)
    for index, word in enumerate(words[1:], start=1):
        if _PROGRAM.fullmatch(word) or (_base(word) in _SHELLS and index + 1 < len(words)):
            return list(words[:index]), list(words[index:])
        if " " in word and _PROGRAM.fullmatch(word.split()[0]):
            return list(words[:index]), split_command(word)
    return [], list(words)


def shell_text(words: Sequence[str]) -> str | None:
    """The script in `bash -c SCRIPT`; None when the words are another command."""
    if len(words) > 2 and _base(words[0]) in _SHELLS:
        at = next((index for index, word in enumerate(words[1:3], start=1) if re.fullmatch(r"-\w*c", word)), None)
        return words[at + 1] if at is not None and at + 1 < len(words) else None
    return None


def filled(word: str, known: Mapping[str, str]) -> str:
    """A word with the variables in it that are known, or that come with a default: `${LENGTH:-8192}`."""

    def value(found: re.Match[str]) -> str:
        return known.get(found[1] or found[2], found[3] or found[0])

    return _VARIABLE.sub(value, word) if "$" in word else word


def unset(text: str) -> bool:
    """Whether a text still holds a variable whose value nobody told."""
    return "$" in text and re.search(r"\$(?:\w|\{|\()", text) is not None


def _base(word: str) -> str:
    return word.rpartition("/")[2].removesuffix(".exe")


def _forgiven(text: str) -> list[str]:
    return re.sub(r"(?m)(^|\s)#.*$", " ", text).split()


def _parted(words: Sequence[str]) -> Iterator[list[str]]:
    part: list[str] = []
    for word in words:
        if word in _ENDS:
            yield part
            part = []
        elif word.endswith(";"):
            yield [*part, word.rstrip(";")]
            part = []
        else:
            part.append(word)
    yield part
