"""The command that starts a server: typed, in a script, after a prompt, in a row of `ps`, or quoted in a sentence."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span, command_spans
from infradoc.sources.launch import launch_facts, system_of
from infradoc.sources.launch_shell import plain
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Fact

_PROMPT = (
    r"\s{0,12}(?:\++ |% |PS [^>]{0,80}> ?|[A-Z]:\\[^>]{0,80}> ?"
    r"|(?!INFO|WARN|ERROR|DEBUG|TRACE)[A-Za-z][\w -]{0,40}: |启动命令 ?[:：] ?)?"
)
_BEFORE = (
    r"(?:[A-Za-z_]\w*=(?:\"[^\"]*\"|'[^']*'|[^\s\"']\S*|) +"
    r"|(?:sudo(?: -\w+)*|nohup|exec|time|env|export|command|&) +)*"
)
_PATH = r"[\"']?(?:[^\s\"'=]*[/\\])?"
# Programs by what surely follows them: "python 3.11" and "ollama is slow" begin sentences.
_PROGRAM = (
    r"(?:(?:vllm|vllm\.exe)[\"']? +(?:serve|bench|chat|complete|run-batch)\b"
    r"|python[\d.]*w?(?:\.exe)?[\"']? +(?:-|\S+\.py\b|\S*/(?:vllm|sglang|lmdeploy|trtllm-serve) )"
    r"|sglang +serve\b|text-generation-launcher\b|llama-[\w-]+(?:\.exe)?[\"']? +-|llamafile\S* +-|server(?:\.exe)? +-"
    r"|lmdeploy +(?:serve|chat|lite|convert)\b|(?:trtllm-serve|trtllm-llmapi-launch) +\S"
    r"|ollama(?:\.exe)? +(?:serve|run|start|create)\b|lemonade\S* +\S|infradoc +serve\b)"
)
_WRAPPER = (
    r"(?:(?:docker|podman|nerdctl) +(?:run|create|exec|compose +(?:run|exec))|srun|mpirun|mpiexec|torchrun|numactl"
    r"|taskset|nice|stdbuf|timeout|setsid|uv +run|uvx|poetry +run|conda +run|nsys +profile|apptainer +\w+"
    r"|singularity +\w+|kubectl +(?:exec|run)|ssh|screen|tmux|(?:ba|z|)sh +-\w*c|wsl)(?= )"
)
_COMMAND = lazy(f"^{_PROMPT}(?P<command>{_BEFORE}(?:{_PATH}{_PROGRAM}|{_WRAPPER}))")
_PS = lazy(
    r"^\S{1,40} +\d+ +(?:[\d.]+ +[\d.]+ +\d+ +\d+ +\S+ +\S+ +\S+ +[\d:]+|\d+ +\d+ +\S+ +\S+ +[\d:-]+) +(?P<command>.+)$"
)
_HOSTS = lazy(r"(?:^|\s)--(?:nnodes|num[-_](?:nodes|machines))[ =](\d{1,4})\b")
_INLINE = lazy(r"`([^`]{8,900})`")
# Lines of a script that set the scene for the command below them.
_SCENE = lazy(
    r"^\s*(?:#|export |(?:set|module|source|ulimit|conda|cd|mkdir|setx|rem) |\$env:"
    r"|[A-Za-z_]\w*=(?:\S*|\"[^\"]*\")$)"
)
# What else stands between the head of a script and its command.
_BODY = lazy(
    r"^\s*(?:echo|printf|sleep|date|hostname|pwd|cat|unset|trap|shopt|eval|ml|spack|mamba|pip|rm|chmod|if|fi|then|else|for|do"
    r"|done|while|nvidia-smi|wait|\[\[?|docker (?:pull|rm|stop|kill|login))(?: |$)|^\s*[A-Za-z_]\w*=.*$"
)
_SCRIPT = lazy(r"^#(?:!|SBATCH )")
_SCRIPT_LINES = 80
_QUOTED_LINES = 40  # over which a quote of the command may go on


class LaunchKind:
    """A command that starts a server we know."""

    name = "launch"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """Commands that name an engine, with what continues them and what a script sets before them."""
        found = [_whole(lines, span) for span in command_spans(lines, _command)]
        found = [_with_scene(lines, span) for span in _apart(found) if system_of(_text(lines[span[0] : span[1]]))]
        found += [(index, index + 1) for index, line in enumerate(lines) if _row(line)]
        return sorted(found) if found else _inline(lines)

    def read(self, segment: Segment) -> Artefact:
        """A fact for each flag that names a knob, and the number of hosts that share one model."""
        text = _text(segment.lines)
        facts = launch_facts(text, segment.source)
        hosts = _HOSTS.search(text)
        if hosts is not None:
            facts = [*facts, Fact("train.nodes", int(hosts[1]), "file", segment.place(0))]
        return Artefact([], facts, [], system_of(text), 0)


def _command(line: str) -> bool:
    """Whether a line is a command, and not what its parser says of it: "vllm serve: error: unrecognized arguments"."""
    return ": error: " not in line and _COMMAND.match(line) is not None


def _text(lines: Sequence[str]) -> str:
    """The lines as a shell would be given them."""
    return "\n".join(_bare(line) for line in lines)


def _bare(line: str) -> str:
    """A line without the prompt, the columns of `ps` or the sentence around its command."""
    found = _COMMAND.match(line)
    if found is not None:
        return line[found.start("command") :]
    row = _row(line)
    if row:
        return row
    quoted = [text for text in _INLINE.findall(line) if _starts(text)] if "`" in line else []
    return quoted[0] if quoted else line


def _row(line: str) -> str:
    """The command in a row of `ps aux` or `ps -ef` that is a server's; empty when the line is none."""
    found = _PS.match(line)
    if found is None or " grep " in line:
        return ""
    return found["command"] if _starts(found["command"]) else ""


def _starts(text: str) -> bool:
    return _COMMAND.match(text) is not None and system_of(text) is not None


def _inline(lines: Sequence[str]) -> list[Span]:
    """The one line that quotes a command with flags in a sentence; where several do, some are only suggestions."""
    found = [
        (index, index + 1)
        for index, line in enumerate(lines)
        if "`" in line and any(" -" in text and _starts(text) for text in _INLINE.findall(line))
    ]
    return found if len(found) == 1 else []


def _whole(lines: Sequence[str], span: Span) -> Span:
    """The span up to the line on which a quote that it opens is closed: `bash -c "` and a script below it."""
    start, end = span
    if _open(lines[start:end]):
        for last in range(end + 1, min(len(lines), end + _QUOTED_LINES) + 1):
            if not _open(lines[start:last]):
                return start, last
    return span


def _open(lines: Sequence[str]) -> bool:
    try:
        shlex.split(plain("\n".join(lines)), comments=True)
    except ValueError as error:
        return "quotation" in str(error)
    return False


def _apart(spans: Sequence[Span]) -> list[Span]:
    """Without those inside the one before: lines of its quoted script."""
    out: list[Span] = []
    for span in spans:
        if not out or span[0] >= out[-1][1]:
            out.append(span)
    return out


def _with_scene(lines: Sequence[str], span: Span) -> Span:
    """The span with the comments and variables right above it, or with all of its script where that begins so."""
    start, end = span
    first = start
    while first and start - first < _SCRIPT_LINES and _in_script(lines[first - 1]):
        first -= 1
    head = next((index for index in range(first, start) if _SCRIPT.match(lines[index])), None)
    if head is not None:
        start = head
    else:
        while start and _SCENE.match(lines[start - 1]) and not lines[start - 1].startswith("##"):
            start -= 1
    while end < len(lines) and lines[end].startswith("# "):
        end += 1
    return start, end


def _in_script(line: str) -> bool:
    return not line.strip() or _SCENE.match(line) is not None or _BODY.match(line) is not None
